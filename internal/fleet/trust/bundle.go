package trust

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/internal/base/selector"
	"sluice/internal/base/sorting"
)

// What a bundle may hold, in bytes and in number.
const (
	MaxFile    = 4 << 20 // fleet.yaml, a part
	MaxFiles   = 64 << 20
	MaxList    = 256 << 20
	MaxLists   = 1 << 30
	maxParts   = 10_000
	maxBundles = 64 // of one targets.json; signing keeps 20
)

// ManifestVersion is the form of a manifest that is written here; no other is read.
const ManifestVersion = 1

// Bundle is a signed version of the policy: targets.json says this of it.
type Bundle struct {
	Number  int64     `json:"number"`
	SHA256  string    `json:"sha256"` // of the manifest
	Size    int64     `json:"size"`   // of the manifest, bytes
	Level   int       `json:"level"`  // of the language that its files need
	Expires time.Time `json:"expires"`

	fleet string
}

// bundlePath is the name of a bundle in targets.json.
func bundlePath(number int64) string { return "bundles/" + strconv.FormatInt(number, 10) }

// BundleCustom is what targets.json says of a bundle beside length and hash.
type BundleCustom struct {
	Number  int64     `json:"number"`
	Expires time.Time `json:"expires"`
	Level   int       `json:"level"`
}

func readBundles(t *targets) ([]Bundle, error) {
	if len(t.Signed.Targets) > maxBundles {
		return nil, fmt.Errorf("targets.json is %w: %d bundles, at most %d", ErrTooLarge, len(t.Signed.Targets), maxBundles)
	}
	var all []Bundle
	for name, is := range t.Signed.Targets {
		var custom BundleCustom
		if is.Custom == nil {
			return nil, fmt.Errorf("targets.json is %w: nothing is said about %q", ErrMalformed, name)
		}
		if err := strictly("targets.json", *is.Custom, &custom); err != nil {
			return nil, err
		}
		hash := is.Hashes["sha256"]
		if custom.Number < 1 || custom.Number > exact || bundlePath(custom.Number) != name ||
			len(hash) != sha256.Size || is.Length < 0 || custom.Level < 0 || custom.Expires.IsZero() {
			return nil, fmt.Errorf("targets.json is %w: %q is not a bundle", ErrMalformed, name)
		}
		if is.Length > MaxManifest {
			return nil, fmt.Errorf("bundle %d is %w: its manifest has %d bytes, at most %d", custom.Number, ErrTooLarge, is.Length, MaxManifest)
		}
		all = append(all, Bundle{custom.Number, hex.EncodeToString(hash), is.Length, custom.Level, custom.Expires, t.Fleet})
	}
	sorting.By(all, func(a, b Bundle) int { return int(a.Number - b.Number) })
	return all, nil
}

// Manifest is a bundle's table of contents.
type Manifest struct {
	Version   int    `json:"version"`
	Fleet     string `json:"fleet"`
	Number    int64  `json:"number"`
	Level     int    `json:"level"`
	FleetFile File   `json:"fleet-file"`
	Parts     []File `json:"parts"`
	// Lists are addresses that sets have by a file, or by a URL as it was when the bundle was
	// signed: large, so hosts fetch them before a roll-out begins.
	Lists []File `json:"lists,omitempty"`
}

// URLLists is the folder of a bundle that has the lists of URLs.
const URLLists = "trust/lists"

// File is fleet.yaml, a part or a list.
type File struct {
	Path     string `json:"path"`               // below the folder of fleet.yaml
	Selector string `json:"selector,omitempty"` // which hosts it is for; "" is all
	SHA256   string `json:"sha256"`
	Size     int64  `json:"size"`
}

// Encode is the one text of a manifest, of which the hash is signed.
func (m *Manifest) Encode() ([]byte, error) {
	if m.Parts == nil {
		m.Parts = []File{}
	}
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, err
	}
	text = append(text, '\n')
	if _, err := readManifest(text); err != nil {
		return nil, err
	}
	return text, nil
}

// Manifest reads a bundle's table of contents, which must be the signed one.
func (b Bundle) Manifest(data []byte) (*Manifest, error) {
	what := fmt.Sprintf("the manifest of bundle %d", b.Number)
	if err := checkHash(what, b.SHA256, b.Size, data); err != nil {
		return nil, err
	}
	m, err := readManifest(data)
	switch {
	case err != nil:
		return nil, err
	case m.Fleet != b.fleet:
		return nil, foreign(what, m.Fleet, b.fleet)
	case m.Number != b.Number || m.Level != b.Level:
		return nil, fmt.Errorf("%s is %w: it says number %d and level %d", what, ErrMalformed, m.Number, m.Level)
	}
	return m, nil
}

func readManifest(data []byte) (*Manifest, error) {
	const what = "the manifest"
	if err := shaped(what, data, MaxManifest); err != nil {
		return nil, err
	}
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, fmt.Errorf("%s is %w: %s", what, ErrMalformed, err.Error())
	}
	if version.Version != ManifestVersion {
		return nil, fmt.Errorf("%s is %w: version %d, and this one reads %d", what, ErrLevel, version.Version, ManifestVersion)
	}
	m := &Manifest{}
	if err := strictly(what, data, m); err != nil {
		return nil, err
	}
	return m, m.check()
}

func (m *Manifest) check() error {
	const what = "the manifest"
	if len(m.Parts) > maxParts || len(m.Lists) > maxParts {
		return fmt.Errorf("%s is %w: %d parts and %d lists, at most %d of each", what, ErrTooLarge, len(m.Parts), len(m.Lists), maxParts)
	}
	names := map[string]bool{}
	texts, err := m.bytes(append([]File{m.FleetFile}, m.Parts...), MaxFile, names)
	if err != nil {
		return err
	}
	lists, err := m.bytes(m.Lists, MaxList, names)
	switch {
	case err != nil:
		return err
	case texts > MaxFiles:
		return fmt.Errorf("the bundle is %w: its parts have %d bytes, at most %d", ErrTooLarge, texts, MaxFiles)
	case lists > MaxLists:
		return fmt.Errorf("the bundle is %w: its lists have %d bytes, at most %d", ErrTooLarge, lists, MaxLists)
	}
	return nil
}

// bytes are those of files, each of at most so many; names are those of the files before.
func (m *Manifest) bytes(files []File, most int64, names map[string]bool) (sum int64, err error) {
	const what = "the manifest"
	for _, f := range files {
		switch {
		case f.Path == "" || path.Clean("/" + f.Path)[1:] != f.Path || strings.ContainsAny(f.Path, "\\\x00\n") || len(f.Path) > 255:
			return 0, fmt.Errorf("%s is %w: path %.80q", what, ErrMalformed, f.Path)
		case names[f.Path]:
			return 0, fmt.Errorf("%s is %w: path %q twice", what, ErrMalformed, f.Path)
		case !isHash(f.SHA256) || f.Size < 0:
			return 0, fmt.Errorf("%s is %w: %s has no hash", what, ErrMalformed, f.Path)
		case f.Size > most:
			return 0, fmt.Errorf("%s is %w: %d bytes, at most %d", f.Path, ErrTooLarge, f.Size, most)
		}
		names[f.Path] = true
		sum += f.Size
	}
	return sum, nil
}

// Files are fleet.yaml, the parts and the lists.
func (m *Manifest) Files() []File {
	return slices.Concat([]File{m.FleetFile}, m.Parts, m.Lists)
}

// Select is what a host with these labels needs of a bundle: fleet.yaml, and each part and
// list that is for it.
func (m *Manifest) Select(host string, labels map[string]string) ([]File, error) {
	all := map[string]string{}
	maps.Copy(all, labels)
	all["host"] = host
	var need []File
	for _, f := range m.Files() {
		if f.Selector != "" {
			s, err := selector.Parse(f.Selector)
			if err != nil {
				return nil, fmt.Errorf("the manifest is %w: %s: selector %.80q: %s", ErrMalformed, f.Path, f.Selector, err.Error())
			}
			if !s.Match(all) {
				continue
			}
		}
		need = append(need, f)
	}
	return need, nil
}

// Check says whether a file is the one that was signed.
func (f File) Check(data []byte) error { return checkHash(f.Path, f.SHA256, f.Size, data) }

func isHash(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == sha256.Size && text == hex.EncodeToString(raw)
}

func checkHash(what, hash string, size int64, data []byte) error {
	if int64(len(data)) != size {
		return fmt.Errorf("%s is %w: %d bytes instead of %d", what, ErrHash, len(data), size)
	}
	if is := HashOf(data); is != hash {
		return fmt.Errorf("%s is %w: SHA-256 %.16s… instead of %.16s…", what, ErrHash, is, hash)
	}
	return nil
}

// HashOf is the name of a blob: the hexadecimal SHA-256 of its bytes.
func HashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
