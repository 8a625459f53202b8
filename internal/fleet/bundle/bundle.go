// Package bundle makes of a repository's files what is signed: fleet.yaml, each part with
// whom it is for, the files of sets. Callers: the command that signs, and the one that
// publishes, which sends the same bytes.
package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/regular"
	"sluice/internal/base/sorting"
	"sluice/internal/fleet/trust"
	"sluice/internal/language/policy"
)

// FleetFile is the name of the file of a fleet in its repository.
const FleetFile = "fleet.yaml"

// Read reads the files of a repository, whose fleet must have this name. What is wrong
// with them is an error as those of [policy.ReadFleet]; parts of some guests alone may be
// broken, which hosts are to judge.
func Read(dir, fleet string) (trust.Signing, error) {
	s := trust.Signing{Level: policy.Level}
	p, err := policy.Reading{Parts: true}.ReadFleet(filepath.Join(dir, FleetFile))
	if err != nil {
		return s, err
	}
	if p.Fleet.Name != fleet {
		return s, p.Errorf(p.Fleet.Pos, fmt.Sprintf("write fleet: %s, or sign with the keys of the other fleet", fleet), "this is the fleet %q, and trust/ is of %q", p.Fleet.Name, fleet)
	}
	b := &builder{dir: dir, at: map[string]int{}, texts: map[string][]byte{}}
	if s.File, err = b.file(p.File, "", p.Text(p.File)); err != nil {
		return s, err
	}
	for _, part := range p.Fleet.Parts {
		selector := ""
		if part.Selector != nil {
			selector = part.Selector.String()
		}
		text := p.Text(part.File)
		if err := b.part(part.File, selector, text); err != nil {
			return s, err
		}
		sets, err := setFiles(text)
		if part.Only != nil || err != nil && slices.ContainsFunc(p.Broken, func(b policy.Broken) bool { return b.File == part.File }) {
			continue // such a part has no files, and may be broken
		}
		if err != nil {
			return s, fmt.Errorf("%s: %w", part.File, err)
		}
		for _, file := range sets {
			name := file
			if !filepath.IsAbs(name) {
				name = filepath.Join(filepath.Dir(part.File), file)
			}
			text, err := regular.Read(name, trust.MaxFile)
			switch {
			case errors.Is(err, regular.ErrLarge):
				return s, fmt.Errorf("%s has more than %d bytes: hosts of a fleet get such a list by its url", name, trust.MaxFile)
			case errors.Is(err, fs.ErrNotExist):
				return s, fmt.Errorf("%s names a file that is not there: %w", part.File, err)
			case err != nil:
				return s, err
			}
			if err := b.part(name, selector, text); err != nil {
				return s, err
			}
		}
	}
	s.Parts, s.Texts = b.parts, b.texts
	return s, nil
}

// setFiles are the files that sets of a part are of. The part has been read as policy
// before; alone it need not be one.
func setFiles(text []byte) ([]string, error) {
	var part struct {
		Sets map[string]any `yaml:"sets"`
	}
	if err := yaml.Unmarshal(text, &part); err != nil {
		return nil, err
	}
	var names []string
	for _, set := range part.Sets {
		if m, is := set.(map[string]any); is {
			if name, is := m["file"].(string); is {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

type builder struct {
	dir   string
	parts []trust.File
	at    map[string]int // of parts, by path
	texts map[string][]byte
}

func (b *builder) file(name, selector string, text []byte) (trust.File, error) {
	path, err := filepath.Rel(b.dir, name)
	if err != nil || !filepath.IsLocal(path) {
		return trust.File{}, fmt.Errorf("%s is outside of the repository %s: hosts get what is in it", name, b.dir)
	}
	hash := trust.HashOf(text)
	b.texts[hash] = text
	return trust.File{Path: filepath.ToSlash(path), Selector: selector, SHA256: hash, Size: int64(len(text))}, nil
}

// part adds a file, or those for whom another part has named it.
func (b *builder) part(name, selector string, text []byte) error {
	f, err := b.file(name, selector, text)
	if err != nil {
		return err
	}
	if i, known := b.at[f.Path]; known {
		b.parts[i].Selector = either(b.parts[i].Selector, selector)
		return nil
	}
	b.at[f.Path] = len(b.parts)
	b.parts = append(b.parts, f)
	return nil
}

// either is a selector for whom one of two is; "" is for every host.
func either(a, b string) string {
	switch {
	case a == "" || b == "":
		return ""
	case a == b:
		return a
	}
	return "(" + a + ") or (" + b + ")"
}

// Changes says what is otherwise than in the bundle before, nil for the first: "+path"
// is new, "-path" gone, "~path" changed, in its text or for whom it is.
func Changes(last *trust.Manifest, s trust.Signing) []string {
	before := map[string]trust.File{}
	if last != nil {
		for _, f := range last.Files() {
			before[f.Path] = f
		}
	}
	changes := []string{}
	for _, f := range append([]trust.File{s.File}, s.Parts...) {
		switch old, known := before[f.Path]; {
		case !known:
			changes = append(changes, "+"+f.Path)
		case old != f:
			changes = append(changes, "~"+f.Path)
		}
		delete(before, f.Path)
	}
	for path := range before {
		changes = append(changes, "-"+path)
	}
	sorting.By(changes, func(a, b string) int { return strings.Compare(a[1:], b[1:]) })
	return changes
}
