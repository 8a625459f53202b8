package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sluice/internal/base/regular"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// liveList is where a live list is.
type liveList struct {
	Wanted trust.List `json:"wanted"`
	Has    string     `json:"has,omitempty"` // the SHA-256 of what is in force
	// Unused says that the policy that runs has no such list.
	Unused bool      `json:"unused,omitempty"`
	Proved time.Time `json:"proved,omitzero"`
	Why    string    `json:"why,omitempty"` // what is wanted is not in force
	Tried  time.Time `json:"tried,omitzero"`
}

const (
	listsName = "lists"
	// refusedTime is after how long what was refused is tried again: whom it would cut may be
	// gone by then.
	refusedTime = time.Hour
	// mostListWhy is how many bytes of why a list is not taken are reported.
	mostListWhy = 1000
)

func (m *Member) listFile(name string) string { return filepath.Join(m.Dir, listsName, name) }

// lists brings into force what live lists hold by now, where the policy that is desired runs.
// What fails is reported of the list alone, and tried again.
func (m *Member) lists(ctx context.Context, d *wire.Desired) error {
	if len(d.Lists) == 0 && len(m.now().Lists) == 0 {
		return nil
	}
	running, err := m.Engine.Now(ctx)
	if err != nil {
		return err
	}
	if d.Bundle == 0 || m.bundleOf(running.File) != d.Bundle || running.Pending {
		return nil
	}
	now := m.now()
	next := map[string]liveList{}
	given, cut := map[string]string{}, false
	for _, l := range d.Lists {
		is := now.Lists[l.Name]
		wanted, err := m.wantedList(l)
		if err != nil {
			is.Why = m.why(err)
			next[l.Name] = is
			m.note(fmt.Errorf("list %s: %w", l.Name, err))
			continue
		}
		done := is.Has == wanted.SHA256 && is.Why == "" || is.Unused
		refused := is.Why != "" && !is.Tried.IsZero() && m.Clock().Sub(is.Tried) < refusedTime && m.Clock().After(is.Tried)
		if is.Wanted == wanted && now.ListsIn == running.Generation && (done || refused) {
			next[l.Name] = is
			continue
		}
		is.Wanted, is.Why, is.Tried = wanted, "", time.Time{}
		if given[l.Name], err = m.listText(ctx, wanted); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			is.Why = m.why(err)
			delete(given, l.Name)
			nudge(m.soon)
		}
		next[l.Name], cut = is, cut || wanted.AllowCut
	}
	if len(given) > 0 {
		if err := m.takeLists(ctx, given, cut, next); err != nil {
			return err
		}
		before := running.Generation
		if running, err = m.Engine.Now(ctx); err != nil {
			return err
		}
		if running.Generation != before { // which was proved as it was loaded
			m.observe(ctx)
			m.Found("")
		}
	}
	if !maps.Equal(next, now.Lists) || now.ListsIn != running.Generation {
		m.keepLists(next, running.Generation)
	}
	return nil
}

// wantedList reads what is signed of a list.
func (m *Member) wantedList(l wire.LiveList) (trust.List, error) {
	if err := trust.CheckListName(l.Name); err != nil {
		return trust.List{}, err
	}
	payload, _, err := m.Trust.Live(trust.ListKind(l.Name), l.Envelope)
	if err != nil {
		return trust.List{}, err
	}
	return trust.ReadList(l.Name, payload)
}

// listText gives a file with what a list is to hold.
func (m *Member) listText(ctx context.Context, l trust.List) (string, error) {
	path := m.listFile(l.Name)
	has, err := regular.Read(path, trust.MaxList)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err == nil && wire.Hash(has) == l.SHA256 {
		return path, nil
	}
	text, err := m.blob(ctx, l.SHA256, l.Size, has)
	if err != nil {
		return "", err
	}
	if err := (trust.File{Path: l.Name, SHA256: l.SHA256, Size: l.Size}).Check(text); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	return path + unfinished, writeFile(path+unfinished, text)
}

// takeLists has the engine take lists, each by itself where not all of them can be had.
func (m *Member) takeLists(ctx context.Context, given map[string]string, cut bool, next map[string]liveList) error {
	used, err := m.Engine.TakeLists(ctx, given, cut)
	var refused *RefusedError
	if errors.As(err, &refused) && len(given) > 1 {
		for name, file := range given {
			if err := m.takeLists(ctx, map[string]string{name: file}, next[name].Wanted.AllowCut, next); err != nil {
				return err
			}
		}
		return nil
	}
	if err != nil && refused == nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		nudge(m.soon)
	}
	for name, file := range given {
		is := next[name]
		switch {
		case err != nil:
			is.Why = m.why(err)
			if refused != nil {
				is.Tried = m.Clock()
			}
			if strings.HasSuffix(file, unfinished) {
				if err := os.Remove(file); err != nil {
					m.note(err)
				}
			}
		case !slices.Contains(used, name):
			is.Unused, is.Has, is.Proved = true, "", time.Time{}
		default:
			if is.Has != is.Wanted.SHA256 || is.Proved.IsZero() {
				is.Proved = m.Clock().Truncate(time.Second)
			}
			is.Unused, is.Has = false, is.Wanted.SHA256
		}
		next[name] = is
		if path := m.listFile(name); err == nil && file != path {
			if err := os.Rename(file, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepLists records where lists are, and reports it.
func (m *Member) keepLists(next map[string]liveList, generation int) {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(next)), func(name string) bool { return next[name].Unused })
	m.update(func(s *State) {
		s.Lists, s.ListsIn, s.Report.Lists = next, generation, nil
		for _, name := range names {
			l := next[name]
			s.Report.Lists = append(s.Report.Lists, wire.ListReport{Name: name, Sha256: l.Has, Proved: l.Proved, Error: l.Why})
		}
	})
}

func (m *Member) why(err error) string {
	text := m.short(err)
	return strings.ToValidUTF8(text[:min(len(text), mostListWhy)], "")
}
