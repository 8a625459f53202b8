// Package cache keeps on disk what is dear to compute and can be computed again:
// what the kernel can do, the addresses of a choice of countries. It lies in the
// folder cache of the state directory, may be deleted at any time, and is bounded.
// An entry that is damaged, or is of another key, is none. Callers:
// engine and geo.
package cache

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sluice/internal/base/regular"
	"sluice/internal/base/sorting"
)

// Cache is the cache below a state directory. The zero value holds nothing and
// keeps nothing.
type Cache struct {
	dir string
}

// Below is the cache of a state directory, which need not be there: a cache never
// makes one.
func Below(stateDir string) Cache { return Cache{filepath.Join(stateDir, "cache")} }

// mostBytes is what an entry has at most: the ranges of all countries are a tenth.
const mostBytes = 256 << 20

// most is how many entries of one kind are kept.
const most = 8

// magic begins every entry; its digit is the version of the form. The checksum of
// key and data follows, then the data.
const magic = "sluice-cache1\n"

// Get gives the data that were kept under a key.
func (c Cache) Get(kind, key string) ([]byte, bool) {
	if c.dir == "" {
		return nil, false
	}
	all, err := regular.Read(c.path(kind, key), mostBytes)
	if err != nil {
		return nil, false
	}
	rest, ok := bytes.CutPrefix(all, []byte(magic))
	if !ok || len(rest) < sha256.Size {
		return nil, false
	}
	sum, data := rest[:sha256.Size], rest[sha256.Size:]
	want := checksum(key, data)
	return data, bytes.Equal(sum, want[:])
}

// Put keeps data under a key; the oldest of many entries goes. A cache that
// cannot be written is as good as none, so nothing is said about it.
func (c Cache) Put(kind, key string, data []byte) {
	if c.dir == "" {
		return
	}
	if err := os.Mkdir(c.dir, 0o700); err != nil && !os.IsExist(err) {
		return
	}
	sum := checksum(key, data)
	entry := slices.Concat([]byte(magic), sum[:], data)
	if len(entry) <= mostBytes && c.replace(c.path(kind, key), entry) == nil {
		c.bound(kind)
	}
}

// replace writes a file as a whole for whoever reads meanwhile. It does not wait for
// the disk: what a crash leaves half has a wrong checksum.
func (c Cache) replace(path string, data []byte) error {
	f, err := os.CreateTemp(c.dir, ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), path)
}

func checksum(key string, data []byte) [sha256.Size]byte {
	h := sha256.New()
	whole := sha256.Sum256([]byte(key))
	h.Write(whole[:])
	h.Write(data)
	return [sha256.Size]byte(h.Sum(nil))
}

func (c Cache) path(kind, key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(c.dir, kind+"-"+hex.EncodeToString(sum[:12]))
}

// stale is when a file that a killed command left is taken for one.
const stale = time.Hour

// bound deletes the oldest entries of a kind, and files of killed commands.
func (c Cache) bound(kind string) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	type file struct {
		name string
		time time.Time
	}
	var files []file
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil:
		case strings.HasPrefix(e.Name(), "."):
			if time.Since(info.ModTime()) > stale {
				_ = os.Remove(filepath.Join(c.dir, e.Name()))
			}
		case strings.HasPrefix(e.Name(), kind+"-"):
			files = append(files, file{e.Name(), info.ModTime()})
		}
	}
	sorting.By(files, func(a, b file) int { return cmp.Or(b.time.Compare(a.time), cmp.Compare(a.name, b.name)) })
	for _, f := range files[min(len(files), most):] {
		_ = os.Remove(filepath.Join(c.dir, f.name))
	}
}
