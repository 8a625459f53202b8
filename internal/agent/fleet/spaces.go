package fleet

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// Space is a network namespace of guests, as it is wanted.
type Space struct {
	File string // the policy of it
	Sum  string // of the file, and of all that it names that the host has written
}

// What a report says of guests at most.
const (
	mostFailed    = 256
	mostFailedWhy = 400 // bytes
)

// spaceFile is the policy of a network namespace in the folder of a bundle.
func spaceFile(dir, netns string) string { return filepath.Join(dir, spacesFolder, netns+".yaml") }

// Spaces is to be called when network namespaces have come or gone, or what is in one differs
// from what was meant.
func (m *Member) Spaces() {
	m.once.Do(m.begun)
	m.mu.Lock()
	m.spaced = true
	m.mu.Unlock()
	nudge(m.wake)
}

// guestsFailed brings the network namespaces of guests to what their policies say, and gives
// why guests are not held as they should be. The error is of what is to be tried again.
func (m *Member) guestsFailed(ctx context.Context, d *wire.Desired) (map[string]string, error) {
	guests, err := m.guests(ctx, d.Guests)
	if err != nil {
		return nil, err
	}
	dir := m.folder(d.Bundle)
	want := map[string]Space{}
	for _, g := range guests {
		if g.Netns == "" || want[g.Netns].File != "" {
			continue
		}
		file := spaceFile(dir, g.Netns)
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, id := range slices.Sorted(maps.Keys(guests)) {
			if guests[id].Netns == g.Netns {
				text = append(text, guests[id].Rules...)
			}
		}
		want[g.Netns] = Space{file, wire.Hash(append(text, file...))}
	}
	failed, err := m.Engine.Spaces(ctx, want)
	if err != nil {
		return nil, err
	}
	leftOut, err := m.Engine.LeftOut(ctx, slices.Sorted(maps.Keys(want)))
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for id, g := range guests {
		if why := cmp.Or(failed[g.Netns], leftOut[rulesFolder+"/"+id+".yaml"]); why != "" {
			why = m.known(why)
			out[id] = strings.ToValidUTF8(why[:min(len(why), mostFailedWhy)], "")
		}
	}
	return out, m.removeSpaces(dir, want)
}

// removeSpaces removes the policies of namespaces that have no guest any more.
func (m *Member) removeSpaces(dir string, want map[string]Space) error {
	all, err := os.ReadDir(filepath.Join(dir, spacesFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range all {
		if name, is := strings.CutSuffix(e.Name(), ".yaml"); is && want[name].File == "" {
			err = errors.Join(err, os.Remove(filepath.Join(dir, spacesFolder, e.Name())))
		}
	}
	return err
}

// takeGuests has guests held in their network namespaces too, and reports that with what else
// is to be reported.
func (m *Member) takeGuests(ctx context.Context, d *wire.Desired, also func(*State)) error {
	m.mu.Lock()
	m.spaced = false
	m.mu.Unlock()
	failed, err := m.guestsFailed(ctx, d)
	m.mu.Lock()
	m.spaced = m.spaced || err != nil
	m.mu.Unlock()
	m.update(func(s *State) {
		also(s)
		switch {
		case err != nil:
		case len(failed) > mostFailed: // who is not named would count as proved
			s.Report.Guests, s.Report.Failed = "", nil
		default:
			s.Report.Guests, s.Report.Failed = s.Aim.Guests, failed
		}
	})
	return err
}

// views are the policies of the network namespaces that guests are in.
func (m *Member) views(dir string, guests map[string]trust.Guest, of func(netns string, guests map[string]guestView) ([]byte, error)) (files []written, err error) {
	in := map[string]map[string]guestView{}
	for id, g := range guests {
		if g.Netns != "" {
			if in[g.Netns] == nil {
				in[g.Netns] = map[string]guestView{}
			}
			in[g.Netns][id] = viewOf(id, g)
		}
	}
	if len(in) == 0 {
		return nil, nil
	}
	if err := os.MkdirAll(filepath.Join(dir, spacesFolder), 0o700); err != nil {
		return nil, err
	}
	for netns, guests := range in {
		text, err := of(netns, guests)
		if err != nil {
			return nil, err
		}
		files = append(files, written{spaceFile(dir, netns), text})
	}
	return files, nil
}
