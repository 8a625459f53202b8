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

// Lister gives what the URL of a set served; path is where hosts find it in the bundle.
type Lister func(path, set, url string) ([]byte, error)

// Read reads the files of a repository, whose fleet must have this name. Of the lists that
// sets have by a URL those are in it that say nothing about refresh, or are live: with refresh
// alone hosts ask for a list by themselves. What is wrong with the files is an error as those of [policy.Reading.ReadFleet];
// parts of some guests alone may be broken, which hosts are to judge.
func Read(dir, fleet string, list Lister) (trust.Signing, error) {
	s := trust.Signing{Level: policy.Level}
	files, err := Open(dir, nil)
	if err != nil {
		return s, err
	}
	p, err := policy.Reading{Files: files, Parts: true}.ReadFleet(filepath.Join(dir, FleetFile))
	if err != nil {
		return s, err
	}
	if p.Fleet.Name != fleet {
		return s, p.Errorf(p.Fleet.Pos, fmt.Sprintf("write fleet: %s, or sign with the keys of the other fleet", fleet), "this is the fleet %q, and trust/ is of %q", p.Fleet.Name, fleet)
	}
	b := &builder{dir: dir, files: files, list: list, at: map[string]int{}, texts: map[string][]byte{}}
	if s.File, err = b.file(p.File, "", p.Text(p.File)); err != nil {
		return s, err
	}
	sets, err := setsOf(p.Text(p.File))
	if err == nil {
		err = b.sets(p.File, "", sets)
	}
	if err != nil {
		return s, err
	}
	for _, part := range p.Fleet.Parts {
		selector := ""
		if part.Selector != nil {
			selector = part.Selector.String()
		}
		text := p.Text(part.File)
		f, err := b.file(part.File, selector, text)
		if err != nil {
			return s, err
		}
		s.Parts = append(s.Parts, f)
		sets, err := setsOf(text)
		if part.Only != nil || err != nil && slices.ContainsFunc(p.Broken, func(b policy.Broken) bool { return b.File == part.File }) {
			continue // such a part has no lists, and may be broken
		}
		if err != nil {
			return s, fmt.Errorf("%s: %w", part.File, err)
		}
		if err := b.sets(part.File, selector, sets); err != nil {
			return s, err
		}
	}
	s.Lists, s.Texts = b.lists, b.texts
	return s, nil
}

// sets adds the lists that sets of a file name.
func (b *builder) sets(of, selector string, sets []source) error {
	for _, set := range sets {
		if set.File == "" {
			path := trust.URLLists + "/" + policy.SignedList(set.name, set.URL)
			if b.known(path, selector) {
				continue
			}
			text, err := b.list(path, set.name, set.URL)
			if err != nil {
				return fmt.Errorf("%s: set %s: %w", of, set.name, err)
			}
			if err := b.add(filepath.Join(b.dir, path), selector, text); err != nil {
				return err
			}
			continue
		}
		name := set.File
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(of), name)
		}
		text, err := b.files.Read(name)
		switch {
		case errors.Is(err, regular.ErrLarge):
			return fmt.Errorf("%s has more than %d MiB: split it into several files and sets, of which another one is made by union", name, trust.MaxList>>20)
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%s names a file that is not there: %w", of, err)
		case err != nil:
			return err
		}
		if err := b.add(name, selector, text); err != nil {
			return err
		}
	}
	return nil
}

// source is a set that has a file, or a URL that is signed.
type source struct {
	name    string
	File    string `yaml:"file"`
	URL     string `yaml:"url"`
	Refresh any    `yaml:"refresh"`
	Live    bool   `yaml:"live"`
}

// setsOf are such sets of fleet.yaml or a part, by name. The text has been read as policy
// before; alone a part need not be one.
func setsOf(text []byte) ([]source, error) {
	var file struct {
		Sets map[string]yaml.Node `yaml:"sets"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	var out []source
	for name, n := range file.Sets {
		s := source{name: name}
		if n.Kind == yaml.MappingNode && n.Decode(&s) == nil && (s.File != "" || s.URL != "" && (s.Refresh == nil || s.Live)) {
			out = append(out, s)
		}
	}
	sorting.By(out, func(a, b source) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

type builder struct {
	dir   string
	files *Folder
	list  Lister
	lists []trust.File
	at    map[string]int // of lists, by path
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

// add adds a list.
func (b *builder) add(name, selector string, text []byte) error {
	f, err := b.file(name, selector, text)
	if err == nil && !b.known(f.Path, selector) {
		b.at[f.Path] = len(b.lists)
		b.lists = append(b.lists, f)
	}
	return err
}

// known says that a list was added for others, and adds those that a selector matches.
func (b *builder) known(path, selector string) bool {
	i, known := b.at[path]
	if known {
		b.lists[i].Selector = either(b.lists[i].Selector, selector)
	}
	return known
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
	for _, f := range slices.Concat([]trust.File{s.File}, s.Parts, s.Lists) {
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
