package trust

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/theupdateframework/go-tuf/v2/metadata"

	"sluice/internal/base/regular"
)

// How long what operators sign is good for, and how many bundles stay listed.
const (
	RootFor     = 2 * 365 * 24 * time.Hour
	BundleFor   = 90 * 24 * time.Hour
	keepBundles = 20
)

const (
	repositoryName = "trust"
	pendingRoot    = "root-pending.json"
)

// Repository is the operator's side: the folder trust/ beside fleet.yaml, in git, with
// root.json in all its versions, targets.json, and of the bundles that it lists the
// manifests and what they are made of. It holds no key.
type Repository struct {
	dir     string // trust/
	roots   [][]byte
	root    *root
	targets *targets // nil before the first bundle
	bytes   []byte   // of targets.json
}

// RoleKeys are the keys of a role, and how many of them must sign.
type RoleKeys struct {
	Keys      []ed25519.PublicKey
	Threshold int
}

// Founding is what a new fleet's root.json says. Root keys sign it.
type Founding struct {
	Fleet                     string
	Root, Policy              RoleKeys
	Snapshot, Timestamp, Live []ed25519.PublicKey
	CA                        []byte // certificate, PEM
}

// Found begins the trust of a fleet in the folder of its fleet.yaml. The error is
// fs.ErrExist where one has begun.
func Found(dir string, f Founding, now time.Time, by ...Signer) (*Repository, error) {
	if err := CheckFleetName(f.Fleet); err != nil {
		return nil, err
	}
	made := metadata.Root(now.Add(RootFor).UTC().Truncate(time.Second))
	made.Signed.ConsistentSnapshot = false
	setRole(made, metadata.ROOT, f.Root)
	setRole(made, metadata.TARGETS, f.Policy)
	setRole(made, metadata.SNAPSHOT, RoleKeys{f.Snapshot, 1})
	setRole(made, metadata.TIMESTAMP, RoleKeys{f.Timestamp, 1})
	made.Signed.UnrecognizedFields = Field(RootField{f.Fleet, hexKeys(f.Live), []string{string(f.CA)}})
	text, err := signAll(made, by)
	if err != nil {
		return nil, err
	}
	first, err := readRoot(text)
	if err != nil {
		return nil, err
	}
	if err := first.signed(metadata.ROOT, first.Metadata); err != nil {
		return nil, err
	}
	r := &Repository{dir: filepath.Join(dir, repositoryName)}
	if _, err := os.Stat(filepath.Join(r.dir, "root.json")); err == nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(r.dir, "root.json"), fs.ErrExist)
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return nil, err
	}
	return r, r.addRoot(text, first)
}

func hexKeys(keys []ed25519.PublicKey) []string {
	texts := make([]string, 0, len(keys))
	for _, key := range keys {
		texts = append(texts, hex.EncodeToString(key))
	}
	return texts
}

// setRole names the keys of a role, and drops those that no role has any more.
func setRole(m *metadata.Metadata[metadata.RootType], role string, keys RoleKeys) {
	is := &metadata.Role{KeyIDs: []string{}, Threshold: keys.Threshold}
	for _, public := range keys.Keys {
		key, id := roleKey(public)
		m.Signed.Keys[id] = key
		is.KeyIDs = append(is.KeyIDs, id)
	}
	m.Signed.Roles[role] = is
	maps.DeleteFunc(m.Signed.Keys, func(id string, _ *metadata.Key) bool {
		for _, other := range m.Signed.Roles {
			if slices.Contains(other.KeyIDs, id) {
				return false
			}
		}
		return true
	})
}

func signAll[T metadata.Roles](document *metadata.Metadata[T], by []Signer) ([]byte, error) {
	for _, signer := range by {
		if err := signDocument(document, signer); err != nil {
			return nil, err
		}
	}
	text, err := document.ToBytes(true)
	return append(text, '\n'), err
}

func (r *Repository) addRoot(text []byte, is *root) error {
	name := strconv.FormatInt(is.Signed.Version, 10) + ".root.json"
	for _, name := range []string{name, "root.json"} {
		if err := writeFile(filepath.Join(r.dir, name), text, 0o644); err != nil {
			return err
		}
	}
	r.roots, r.root = append(r.roots, text), is
	return nil
}

// OpenRepository reads the trust of a fleet from the folder of its fleet.yaml and
// verifies the chain of root.json from its first version.
func OpenRepository(dir string) (*Repository, error) {
	r := &Repository{dir: filepath.Join(dir, repositoryName)}
	for version := 1; ; version++ {
		text, err := regular.Read(filepath.Join(r.dir, strconv.Itoa(version)+".root.json"), MaxRoot)
		if errors.Is(err, fs.ErrNotExist) && version > 1 {
			break
		}
		if err != nil {
			return nil, err
		}
		r.roots = append(r.roots, text)
	}
	first, err := readRoot(r.roots[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.dir, err)
	}
	if _, r.root, err = (kept{Root: r.roots[0]}).withRoots(first, r.roots[1:]); err != nil {
		return nil, fmt.Errorf("%s: %w", r.dir, err)
	}
	if err := r.root.signed(metadata.ROOT, r.root.Metadata); err != nil {
		return nil, fmt.Errorf("%s: %w", r.dir, err)
	}
	text, err := regular.Read(filepath.Join(r.dir, "targets.json"), MaxTargets)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if r.targets, err = readTargets(text); err != nil {
		return nil, fmt.Errorf("%s: %w", r.dir, err)
	}
	r.bytes = text
	return r, nil
}

// Fleet is the name of the fleet.
func (r *Repository) Fleet() string { return r.root.Fleet }

// Root is the newest root.json, whose hash tokens carry.
func (r *Repository) Root() []byte { return r.roots[len(r.roots)-1] }

// RootVersion is the version of the newest root.json.
func (r *Repository) RootVersion() int64 { return r.root.Signed.Version }

// RootExpires is when root.json ends: no policy changes after that.
func (r *Repository) RootExpires() time.Time { return r.root.Signed.Expires }

// Role is which keys a role has: root, targets (which signs policies), snapshot,
// timestamp.
func (r *Repository) Role(role string) RoleKeys {
	keys, threshold := r.root.keys(role)
	return RoleKeys{keys, threshold}
}

// Metadata is what a controller is given: roots and targets. The error is ErrThreshold or
// ErrUnsigned where the bundles lack signatures.
func (r *Repository) Metadata() (Metadata, error) {
	if r.targets == nil {
		return Metadata{}, fmt.Errorf("%s: no bundle is signed yet: %w", r.dir, fs.ErrNotExist)
	}
	return Metadata{Roots: r.roots, Targets: r.bytes}, r.root.signed(metadata.TARGETS, r.targets.Metadata)
}

// Manifests are the tables of contents of the listed bundles, by their hash.
func (r *Repository) Manifests() (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, b := range r.Bundles() {
		text, err := r.manifestOf(b)
		if err != nil {
			return nil, err
		}
		all[b.SHA256] = text
	}
	return all, nil
}

func (r *Repository) manifestPath(number int64) string {
	return filepath.Join(r.dir, "bundles", strconv.FormatInt(number, 10)+".json")
}

func (r *Repository) manifestOf(b Bundle) ([]byte, error) {
	text, err := regular.Read(r.manifestPath(b.Number), MaxManifest)
	if err != nil {
		return nil, err
	}
	_, err = b.Manifest(text)
	return text, err
}

// Bundles are those that are listed, by number.
func (r *Repository) Bundles() []Bundle {
	if r.targets == nil {
		return nil
	}
	return r.targets.bundles
}

// Newest is the bundle with the highest number and what is in it; nil before the first.
func (r *Repository) Newest() (*Bundle, *Manifest, error) {
	all := r.Bundles()
	if len(all) == 0 {
		return nil, nil, nil
	}
	b := all[len(all)-1]
	text, err := r.manifestOf(b)
	if err != nil {
		return nil, nil, err
	}
	m, err := b.Manifest(text)
	return &b, m, err
}

// Signing is what is to be signed.
type Signing struct {
	Level   int    // of the language that the files need
	File    File   // fleet.yaml
	Parts   []File // in the order of their names
	Lists   []File
	Texts   map[string][]byte // the bytes of these by their hash, which the repository keeps
	Floor   int64             // the lowest bundle that hosts may enforce; 0 leaves it
	Restore bool              // a new incarnation: an older database has been restored
	For     time.Duration
}

// Signed is what was signed.
type Signed struct {
	Bundle      Bundle `json:"bundle"`
	New         bool   `json:"new"` // false: the newest bundle's end was moved, or its signatures were added
	Floor       int64  `json:"floor"`
	Incarnation int64  `json:"incarnation"`
	Signatures  int    `json:"signatures"` // that count
	Needed      int    `json:"needed"`
}

// Plan says what Sign would sign.
func (r *Repository) Plan(s Signing, now time.Time) (Signed, error) {
	made, _, err := r.plan(s, now)
	return made, err
}

// plan is Sign's decision: what follows, and the text of a new manifest, nil without one.
func (r *Repository) plan(s Signing, now time.Time) (Signed, []byte, error) {
	_, needed := r.root.keys(metadata.TARGETS)
	made := Signed{Needed: needed, Floor: s.Floor, Incarnation: 1}
	if now.After(r.root.Signed.Expires) {
		return made, nil, expired("root.json", r.root.Signed.Expires, now)
	}
	number := int64(1)
	last, manifest, err := r.Newest()
	if err != nil {
		return made, nil, err
	}
	if s.Parts == nil {
		s.Parts = []File{} // as it is read
	}
	m := &Manifest{ManifestVersion, r.root.Fleet, number, s.Level, s.File, s.Parts, s.Lists}
	if last != nil {
		number = last.Number
		made.Incarnation = r.targets.Incarnation
		if s.Floor == 0 {
			made.Floor = r.targets.Floor
		}
		if s.Restore {
			made.Incarnation++
		}
		m.Number = number
		if !sameManifest(m, manifest) {
			number++
		}
	}
	switch {
	case made.Floor > number:
		return made, nil, fmt.Errorf("floor %d is above the newest bundle, %d", made.Floor, number)
	case r.targets != nil && made.Floor < r.targets.Floor:
		return made, nil, fmt.Errorf("floor %d is %w, %d: a floor cannot be lowered", made.Floor, ErrRolledBack, r.targets.Floor)
	}
	m.Number = number
	made.New = last == nil || number > last.Number
	text, err := m.Encode()
	if err != nil {
		return made, nil, err
	}
	if s.For == 0 {
		s.For = BundleFor
	}
	made.Bundle = Bundle{number, HashOf(text), int64(len(text)), s.Level, now.Add(s.For).UTC().Truncate(time.Second), r.root.Fleet}
	if !made.New {
		return made, nil, nil
	}
	return made, text, nil
}

func sameManifest(a, b *Manifest) bool {
	one, err := json.Marshal(a)
	other, err2 := json.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(one, other)
}

// Sign lists a new bundle, or moves the end of the newest where nothing has changed, and
// signs the list. Where it lacks signatures of others, theirs are added by [Repository.Cosign].
func (r *Repository) Sign(s Signing, now time.Time, by ...Signer) (Signed, error) {
	made, manifest, err := r.plan(s, now)
	if err != nil {
		return made, err
	}
	if err := r.keep(s.Texts); err != nil {
		return made, err
	}
	next := metadata.Targets(made.Bundle.Expires)
	if r.targets != nil {
		next.Signed.Version = r.targets.Signed.Version + 1
		maps.Copy(next.Signed.Targets, r.targets.Signed.Targets)
		if end := r.targets.Signed.Expires; end.After(next.Signed.Expires) {
			next.Signed.Expires = end
		}
	}
	if err := addBundle(next, made.Bundle); err != nil {
		return made, err
	}
	for name := range next.Signed.Targets {
		number, err := strconv.ParseInt(name[len("bundles/"):], 10, 64)
		if err == nil && number <= made.Bundle.Number-keepBundles {
			delete(next.Signed.Targets, name)
			defer os.Remove(r.manifestPath(number))
		}
	}
	next.Signed.UnrecognizedFields = Field(TargetsField{r.root.Fleet, made.Incarnation, made.Floor})
	if manifest != nil {
		// git keeps no empty folder
		if err := os.MkdirAll(filepath.Join(r.dir, "bundles"), 0o755); err != nil {
			return made, err
		}
		if err := writeFile(r.manifestPath(made.Bundle.Number), manifest, 0o644); err != nil {
			return made, err
		}
	}
	if made.Signatures, err = r.writeTargets(next, by); err != nil {
		return made, err
	}
	return made, r.tidy()
}

func addBundle(t *metadata.Metadata[metadata.TargetsType], b Bundle) error {
	custom, err := json.Marshal(BundleCustom{b.Number, b.Expires, b.Level})
	if err != nil {
		return err
	}
	sum, err := hex.DecodeString(b.SHA256)
	if err != nil {
		return err
	}
	raw := json.RawMessage(custom)
	t.Signed.Targets[bundlePath(b.Number)] = &metadata.TargetFiles{Length: b.Size, Hashes: metadata.Hashes{"sha256": sum}, Custom: &raw}
	return nil
}

// Pending says how many signatures the list of bundles has that count, and how many it
// needs.
func (r *Repository) Pending() (has, needs int) {
	_, needs = r.root.keys(metadata.TARGETS)
	if r.targets == nil {
		return 0, needs
	}
	return r.root.signatures(metadata.TARGETS, r.targets.Metadata), needs
}

// Cosign adds signatures to the list of bundles as it is.
func (r *Repository) Cosign(by ...Signer) error {
	if r.targets == nil {
		return fmt.Errorf("%s: no bundle is signed yet: %w", r.dir, fs.ErrNotExist)
	}
	_, err := r.writeTargets(r.targets.Metadata, by)
	return err
}

func (r *Repository) writeTargets(t *metadata.Metadata[metadata.TargetsType], by []Signer) (int, error) {
	keys, _ := r.root.keys(metadata.TARGETS)
	if err := signers(keys, by); err != nil {
		return 0, err
	}
	text, err := signAll(t, by)
	if err != nil {
		return 0, err
	}
	next, err := readTargets(text)
	if err != nil {
		return 0, err
	}
	if err := writeFile(filepath.Join(r.dir, "targets.json"), text, 0o644); err != nil {
		return 0, err
	}
	r.targets, r.bytes = next, text
	return r.root.signatures(metadata.TARGETS, next.Metadata), nil
}

// KeyName is how people tell keys apart: the first 16 digits of its id.
func KeyName(key ed25519.PublicKey) string {
	_, id := roleKey(key)
	return id[:16]
}
