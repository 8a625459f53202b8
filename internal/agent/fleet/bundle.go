package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/regular"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

const (
	viewName     = "host.yaml"     // the policy that is applied
	manifestName = "manifest.json" // as it was signed; there when all files are
	rulesFolder  = "guest-rules"   // of what owners of guests have written
	spacesFolder = "guest-netns"   // of the policies of network namespaces that guests are in
	mostView     = 16 << 20        // bytes
	keptBundles  = 3
)

func (m *Member) folder(bundle int64) string {
	return filepath.Join(m.bundles(), strconv.FormatInt(bundle, 10))
}

// bundleOf is the bundle whose policy has a path; 0 for one of somebody else.
func (m *Member) bundleOf(file string) int64 {
	if filepath.Base(file) != viewName || filepath.Dir(filepath.Dir(file)) != m.bundles() {
		return 0
	}
	n, _ := strconv.ParseInt(filepath.Base(filepath.Dir(file)), 10, 64)
	return n
}

// have are the bundles that are here whole.
func (m *Member) have() []int64 {
	var out []int64
	entries, err := os.ReadDir(m.bundles())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.note(err)
	}
	for _, e := range entries {
		n, err := strconv.ParseInt(e.Name(), 10, 64)
		if _, there := os.Lstat(filepath.Join(m.folder(n), manifestName)); err == nil && n > 0 && there == nil {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// prefetch brings a bundle here before it is wanted.
func (m *Member) prefetch(ctx context.Context, d *wire.Desired) error {
	if d.Prefetch == nil {
		return nil
	}
	a := aim{Incarnation: d.Order.Incarnation, Bundle: d.Prefetch.Bundle, Rollout: d.Prefetch.Rollout, Labels: m.now().Labels}
	if now := m.now(); now.Aim == a && now.Report.State == wire.StateFetched {
		return nil
	}
	done := m.now().Done
	m.begin(a, d, wire.StateNone)
	_, err := m.files(ctx, a.Bundle)
	if err != nil {
		err = m.refuse(ctx, err)
	} else {
		m.report(func(r *wire.Report) { r.State = wire.StateFetched })
	}
	m.update(func(s *State) { s.Done = done })
	return err
}

// fetch brings a bundle here, and writes the policy of this host; undo restores the one
// that stood there.
func (m *Member) fetch(ctx context.Context, d *wire.Desired) (file string, undo func(), err error) {
	dir, err := m.files(ctx, d.Bundle)
	if err != nil {
		return "", nil, err
	}
	members, err := m.members(ctx, d.Members)
	if err != nil {
		return "", nil, err
	}
	guests, err := m.guests(ctx, d.Guests)
	if err != nil {
		return "", nil, err
	}
	files, err := m.view(dir, members, guests)
	if err != nil {
		return "", nil, err
	}
	replaced, err := m.replace(files)
	undo = func() {
		replaced()
		if err := m.putBack(d.Bundle); err != nil {
			m.note(err)
		}
	}
	if err != nil {
		undo()
		return "", nil, err
	}
	if s := m.Report().State; s == wire.StateNone || s == wire.StateRefused {
		m.passing(func(r *wire.Report) { r.State, r.Error = wire.StateFetched, "" })
	}
	return filepath.Join(dir, viewName), undo, nil
}

// written is what a host writes itself into the folder of a bundle.
type written struct {
	path string
	text []byte
}

// replace writes files, and undo restores those that stood there.
func (m *Member) replace(files []written) (undo func(), err error) {
	var before []written
	undo = func() {
		for _, f := range slices.Backward(before) {
			if err := writeFile(f.path, f.text); err != nil {
				m.note(err)
			}
		}
	}
	for _, f := range files {
		text, err := regular.Read(f.path, mostView)
		switch {
		case err == nil && bytes.Equal(text, f.text):
			continue
		case err == nil:
			before = append(before, written{f.path, text})
		case !errors.Is(err, fs.ErrNotExist):
			return undo, err
		}
		if err := writeFile(f.path, f.text); err != nil {
			return undo, err
		}
	}
	return undo, nil
}

// files gives the folder of a bundle, with all files in it that are signed for this host.
func (m *Member) files(ctx context.Context, number int64) (string, error) {
	b, err := m.bundle(ctx, number)
	if err != nil {
		return "", err
	}
	dir := m.folder(number)
	text, err := regular.Read(filepath.Join(dir, manifestName), b.Size)
	if err == nil {
		if manifest, err := b.Manifest(text); err == nil && m.whole(dir, manifest) {
			return dir, nil
		}
	}
	if text, err = m.blob(ctx, b.SHA256, b.Size, nil); err != nil {
		return "", err
	}
	manifest, err := b.Manifest(text)
	if err != nil {
		return "", err
	}
	wanted, err := m.selected(manifest)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(m.bundles(), 0o700); err != nil {
		return "", err
	}
	m.sweep()
	next, err := os.MkdirTemp(m.bundles(), unfinished)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(next)
	have := m.have()
	for _, f := range wanted {
		if err := m.file(ctx, next, f, have); err != nil {
			return "", err
		}
	}
	if err := writeFile(filepath.Join(next, manifestName), text); err != nil {
		return "", err
	}
	if err := m.setAside(number); err != nil {
		return "", err
	}
	return dir, os.Rename(next, dir)
}

// aside is what the folder of a bundle is called that other labels filled, while what these select
// is on trial.
const aside = ".was-"

// setAside makes room for the folder of a bundle. What is aside already is what runs.
func (m *Member) setAside(number int64) error {
	dir, was := m.folder(number), filepath.Join(m.bundles(), fmt.Sprintf("%s%d", aside, number))
	if _, err := os.Lstat(was); err == nil {
		return os.RemoveAll(dir)
	}
	if err := os.Rename(dir, was); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// putBack has the folder of a bundle be what it was, if it is aside.
func (m *Member) putBack(number int64) error {
	dir, was := m.folder(number), filepath.Join(m.bundles(), fmt.Sprintf("%s%d", aside, number))
	if _, err := os.Lstat(was); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(os.RemoveAll(dir), os.Rename(was, dir))
}

// blob gives what has a hash: that came with what is desired, or that a controller is asked
// for.
func (m *Member) blob(ctx context.Context, hash string, most int64, from []byte) ([]byte, error) {
	m.mu.Lock()
	text, given := m.given[hash]
	m.mu.Unlock()
	if given && int64(len(text)) <= most {
		return text, nil
	}
	return m.Controllers.Blob(ctx, hash, most, from)
}

// bundle is what is signed of a bundle, with what the controller shows now where that is not
// known yet.
func (m *Member) bundle(ctx context.Context, number int64) (trust.Bundle, error) {
	b, err := m.Trust.Bundle(number, m.Level, m.Clock())
	if err == nil || !errors.Is(err, trust.ErrUnsigned) && !errors.Is(err, trust.ErrExpired) {
		return b, err
	}
	t, asked := m.Controllers.Metadata(ctx)
	if asked == nil {
		asked = m.believe(t)
	}
	if asked != nil {
		return b, fmt.Errorf("%w; %w", err, asked)
	}
	return m.Trust.Bundle(number, m.Level, m.Clock())
}

// selected are the files that this host needs, all of which have to be there.
func (m *Member) selected(manifest *trust.Manifest) ([]trust.File, error) {
	files, err := manifest.Select(m.Host, m.labels())
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if name, _, _ := strings.Cut(f.Path, "/"); name == viewName || name == manifestName || name == rulesFolder || name == spacesFolder {
			return nil, &RefusedError{fmt.Sprintf("bundle %d has a file of the name %s, which the host writes itself: rename it", manifest.Number, f.Path)}
		}
	}
	return files, nil
}

// whole says whether a folder has what was signed, and nothing was changed since.
func (m *Member) whole(dir string, manifest *trust.Manifest) bool {
	files, err := m.selected(manifest)
	for _, f := range files {
		if err == nil {
			var text []byte
			if text, err = regular.Read(filepath.Join(dir, f.Path), f.Size); err == nil {
				err = f.Check(text)
			}
		}
	}
	return err == nil
}

// file writes one file of a bundle: that of an older one where it is the same, which both have
// from then on, or what the controller gives.
func (m *Member) file(ctx context.Context, dir string, f trust.File, have []int64) error {
	path := filepath.Join(dir, f.Path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	var older []byte
	for _, n := range slices.Backward(have) {
		from := filepath.Join(m.folder(n), f.Path)
		had, err := regular.Read(from, trust.MaxList)
		if err != nil {
			continue
		}
		if f.Check(had) == nil {
			if os.Link(from, path) == nil {
				return nil
			}
			return writeFile(path, had) // a file system without links
		}
		if older == nil {
			older = had
		}
	}
	text, err := m.blob(ctx, f.SHA256, f.Size, older)
	if err != nil {
		return err
	}
	if err := f.Check(text); err != nil {
		return err
	}
	return writeFile(path, text)
}

// unfinished is what the folder of a bundle is called for as long as files of it are missing.
const unfinished = ".new-"

// sweep removes what an agent that was killed has left of a bundle.
func (m *Member) sweep() { m.remove(unfinished) }

// remove removes folders by how their names begin.
func (m *Member) remove(begin string) {
	left, err := filepath.Glob(filepath.Join(m.bundles(), begin+"*"))
	for _, path := range left {
		err = errors.Join(err, os.RemoveAll(path))
	}
	if err != nil {
		m.note(err)
	}
}

// prune removes bundles that are older than the newest ones and do not run.
func (m *Member) prune(running int64) {
	m.remove(aside)
	have := m.have()
	for i, n := range have {
		if i < len(have)-keptBundles && n != running {
			if err := os.RemoveAll(m.folder(n)); err != nil {
				m.note(err)
			}
		}
	}
}

// guestView is a guest in the view of its host.
type guestView struct {
	Interface string            `yaml:"interface"`
	Netns     string            `yaml:"netns,omitempty"`
	Addresses []netip.Addr      `yaml:"addresses"`
	Public    []netip.Addr      `yaml:"public,omitempty"`
	Labels    map[string]string `yaml:"labels,omitempty"`
	Rules     string            `yaml:"rules,omitempty"`
}

// view is the policy of this host: the fleet's in the folder of a bundle, and what the host
// is in it. Its file is the last one, behind those of the rules of guests and of network
// namespaces.
func (m *Member) view(dir string, members map[string][]string, guests map[string]trust.Guest) (files []written, err error) {
	lists := trust.URLLists
	switch _, err := os.Stat(filepath.Join(dir, lists)); {
	case errors.Is(err, fs.ErrNotExist):
		lists = ""
	case err != nil:
		return nil, err
	}
	shown := map[string]guestView{}
	for id, g := range guests {
		shown[id] = viewOf(id, g)
		if g.Rules != "" {
			files = append(files, written{filepath.Join(dir, shown[id].Rules), []byte(g.Rules)})
		}
	}
	if len(files) > 0 {
		if err := os.MkdirAll(filepath.Join(dir, rulesFolder), 0o700); err != nil {
			return nil, err
		}
	}
	type view struct {
		Version int                  `yaml:"version"`
		Fleet   string               `yaml:"fleet"`
		Host    string               `yaml:"host"`
		Netns   string               `yaml:"netns,omitempty"`
		Labels  map[string]string    `yaml:"labels,omitempty"`
		Members map[string][]string  `yaml:"members,omitempty"`
		Guests  map[string]guestView `yaml:"guests,omitempty"`
		Lists   string               `yaml:"lists,omitempty"`
	}
	more, err := m.views(dir, guests, func(netns string, guests map[string]guestView) ([]byte, error) {
		out := view{1, "../fleet.yaml", m.Host, netns, m.labels(), members, guests, lists}
		if lists != "" {
			out.Lists = "../" + lists
		}
		return yaml.Marshal(out)
	})
	if err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(view{1, "fleet.yaml", m.Host, "", m.labels(), members, shown, lists})
	return append(append(files, more...), written{filepath.Join(dir, viewName), text}), err
}

func viewOf(id string, g trust.Guest) guestView {
	v := guestView{Interface: g.Interface, Netns: g.Netns, Addresses: g.Addresses, Public: g.Public, Labels: g.Labels}
	if g.Rules != "" {
		v.Rules = rulesFolder + "/" + id + ".yaml"
	}
	return v
}

func itoa(n int) string { return strconv.Itoa(n) }

func atoi(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}
