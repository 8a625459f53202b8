package lists

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"sluice/internal/base/fetch"
)

// Staging is copies that were fetched and are not in use yet: they take the
// place of the old ones by Keep. To resolve it gives the new copies, and of all
// other lists the old ones.
type Staging struct {
	store  Store
	staged map[string]*staged // by URL
}

type staged struct {
	got  *fetched // nil: the server said that the copy is current
	info copyInfo
}

// State is what came of asking for one list.
type State string

// States.
const (
	Current State = "current" // the server said that the copy is
	Fetched State = "fetched" // there is a new copy, which may say the same
)

// Stage begins with nothing fetched.
func (s Store) Stage() *Staging { return &Staging{store: s, staged: map[string]*staged{}} }

// Due says whether a list is to be asked for: its copy is older than refresh,
// or there is none. A zero refresh is never due.
func (s Store) Due(url string, refresh time.Duration) (bool, error) {
	info, err := s.info(s.path(url))
	if err != nil {
		return false, err
	}
	return info.Fetched.IsZero() || info.older(refresh), nil
}

// Fetch asks for a list. What is empty, damaged, or far smaller or larger than the
// copy is refused; with force, whatever size is taken.
func (g *Staging) Fetch(ctx context.Context, url string, force bool) (State, error) {
	s := g.store
	path := s.path(url)
	old, err := s.info(path)
	if err != nil {
		return "", err
	}
	got, info, err := s.request(ctx, url, old)
	if err != nil {
		return "", err
	}
	if got.notModified {
		g.staged[url] = &staged{info: info}
		return Current, nil
	}
	_, err = checked(url, got.path, path)
	var size *SizeError
	if errors.As(err, &size) && force {
		err = nil
	}
	if err != nil {
		got.discard()
		return "", err
	}
	g.staged[url] = &staged{got, info}
	return Fetched, nil
}

// Give takes a text for what the server of a list gave, whatever its size is.
func (g *Staging) Give(url string, text io.Reader) error {
	if err := os.MkdirAll(g.store.Dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(g.store.Dir, ".fetch-*")
	if err != nil {
		return err
	}
	got := &fetched{path: file.Name()}
	_, err = io.Copy(file, io.LimitReader(text, maxCopy+1))
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		_, err = readSet(url, got.path)
	}
	if err != nil {
		got.discard()
		return err
	}
	g.staged[url] = &staged{got, copyInfo{URL: fetch.Redact(url), Fetched: time.Now(), Plain: true}}
	return nil
}

// Copied is when the server last said that the copy in use of a list is current;
// false where there is none.
func (g *Staging) Copied(url string) (time.Time, bool) {
	info, err := g.store.info(g.store.path(url))
	return info.Fetched, err == nil && !info.Fetched.IsZero()
}

// Open gives the new copy of a list, or the old one.
func (g *Staging) Open(url string, _ time.Duration) (io.ReadCloser, string, error) {
	path := g.store.path(url)
	if s := g.staged[url]; s != nil && s.got != nil {
		path = s.got.path
	}
	return copyOf(url, path)
}

// Copy is the new copy of a list, or the old one; nil where there is none.
func (g *Staging) Copy(url string) (io.ReadCloser, error) {
	if s := g.staged[url]; s != nil && s.got != nil {
		text, _, err := copyOf(url, s.got.path)
		return text, err
	}
	return g.store.Copy(url)
}

// Keep puts the new copies into the place of the old ones.
func (g *Staging) Keep() error {
	for url, s := range g.staged {
		path := g.store.path(url)
		if s.got != nil {
			if err := s.got.keep(path); err != nil {
				return err
			}
		}
		if err := g.store.keepInfo(path, s.info); err != nil {
			return err
		}
		delete(g.staged, url)
	}
	return nil
}

// Discard leaves the old copies as they are.
func (g *Staging) Discard() {
	for url, s := range g.staged {
		if s.got != nil {
			s.got.discard()
		}
		delete(g.staged, url)
	}
}
