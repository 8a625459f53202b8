package cache

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestCache(t *testing.T) {
	state := t.TempDir()
	c := Below(state)
	if _, ok := c.Get("kind", "a"); ok {
		t.Error("an empty cache gives something")
	}
	c.Put("kind", "a", []byte("one"))
	c.Put("kind", "b", []byte("two"))
	c.Put("other", "a", []byte("three"))
	for _, want := range []struct{ kind, key, data string }{{"kind", "a", "one"}, {"kind", "b", "two"}, {"other", "a", "three"}} {
		if data, ok := c.Get(want.kind, want.key); !ok || string(data) != want.data {
			t.Errorf("%s %s: %q %v, want %q", want.kind, want.key, data, ok, want.data)
		}
	}
	c.Put("kind", "a", nil)
	if data, ok := c.Get("kind", "a"); !ok || len(data) != 0 {
		t.Errorf("replaced by nothing: %q %v", data, ok)
	}
}

// Whatever byte of an entry is changed, lost or added, the entry is none.
func TestDamaged(t *testing.T) {
	c := Below(t.TempDir())
	c.Put("kind", "a", []byte("some data"))
	path := c.path("kind", "a")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if data, ok := c.Get("kind", "a"); ok {
			t.Errorf("%s: gives %q", what, data)
		}
	}
	for i := range whole {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 1
		try(fmt.Sprintf("byte %d changed", i), flipped)
		try(fmt.Sprintf("cut off at byte %d", i), whole[:i])
	}
	try("a byte more", append(bytes.Clone(whole), 'x'))
	// The entry of another key in its place.
	c.Put("kind", "b", []byte("other data"))
	other, err := os.ReadFile(c.path("kind", "b"))
	if err != nil {
		t.Fatal(err)
	}
	try("of another key", other)
}

func TestBounded(t *testing.T) {
	state := t.TempDir()
	c := Below(state)
	c.Put("other", "a", nil)
	left := filepath.Join(state, "cache", ".left")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * stale)
	if err := os.Chtimes(left, old, old); err != nil {
		t.Fatal(err)
	}
	for i := range most + 3 {
		key := fmt.Sprint(i)
		c.Put("kind", key, []byte(key))
		at := old.Add(time.Duration(i) * time.Second)
		if err := os.Chtimes(c.path("kind", key), at, at); err != nil {
			t.Fatal(err)
		}
	}
	c.Put("kind", "last", nil)
	if entries, err := os.ReadDir(filepath.Join(state, "cache")); err != nil || len(entries) != most+1 {
		t.Errorf("%d entries are kept: %v, %v", len(entries), entries, err)
	}
	for key, want := range map[string]bool{"0": false, "3": false, "4": true, "10": true, "last": true} {
		if _, ok := c.Get("kind", key); ok != want {
			t.Errorf("entry %s: kept is %v, want %v", key, ok, want)
		}
	}
}

// Where there is no state directory, none comes to be.
func TestMakesNoState(t *testing.T) {
	state := filepath.Join(t.TempDir(), "none")
	Below(state).Put("kind", "a", nil)
	Cache{}.Put("kind", "a", nil)
	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Errorf("the state directory: %v", err)
	}
}

// What is in place of an entry and is no file, or has no end, is none, and
// makes way for the next one.
func TestNoFile(t *testing.T) {
	c := Below(t.TempDir())
	c.Put("kind", "a", []byte("some data"))
	path := c.path("kind", "a")
	for name, put := range map[string]func() error{
		"a FIFO":   func() error { return unix.Mkfifo(path, 0o600) },
		"a device": func() error { return os.Symlink("/dev/zero", path) },
		"endless":  func() error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) },
	} {
		if err := errors.Join(os.Remove(path), put()); err != nil {
			t.Fatal(err)
		}
		if data, ok := c.Get("kind", "a"); ok {
			t.Errorf("%s: gives %d bytes", name, len(data))
		}
		c.Put("kind", "a", []byte("new"))
		if data, ok := c.Get("kind", "a"); !ok || string(data) != "new" {
			t.Errorf("%s, replaced: %q %v", name, data, ok)
		}
	}
}
