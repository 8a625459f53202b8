// Package lists keeps the last good copy of what the URLs of a policy's sets
// serve. A copy is replaced only by one that arrived whole and reads as a list
// of addresses; while none does, the old one stays. What a server sent is read by
// a process without rights (apart), and the copy is made of the ranges that it hands
// back. Caller: engine, which hands a Store to resolve.
package lists

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"sluice/internal/base/fetch"
	"sluice/internal/base/regular"
)

// maxBytes is the size of the largest list that is taken: 4 million lines of
// IPv4 prefixes.
const maxBytes = 64 << 20

// maxCopy and maxInfo bound a copy and what is known of it, in bytes; a range may be
// longer as it is kept than as its server writes it.
const (
	maxCopy = 8 * maxBytes
	maxInfo = 1 << 20
)

// patience is how long a list may take as a whole, however steadily it drips,
// before the copy is used instead.
const patience = 2 * time.Minute

var errPatience = fmt.Errorf("the download was not complete after %v", patience)

// Store is a folder of copies.
type Store struct {
	Dir     string
	Context context.Context
	// Offline takes the copies as they are and asks no server.
	Offline bool
	// Child is apart.Process's Command.
	Child []string
	// Warn is told when an old copy is used since no new one could be had.
	Warn func(*StaleError)
	// Unconfined is told what that process is not confined by.
	Unconfined func(text string)
}

// StaleError says that an old copy is used, since no new one could be had.
type StaleError struct {
	Err    error // a *SizeError where a new one was refused
	Copied time.Time
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%v; using the copy of %s", e.Err, e.Copied.Local().Format(time.DateTime))
}

// copyInfo is next to each copy.
type copyInfo struct {
	URL      string    `json:"url"`
	Fetched  time.Time `json:"fetched"` // when the server last said that this is current
	ETag     string    `json:"etag,omitempty"`
	Modified string    `json:"modified,omitempty"`
	Plain    bool      `json:"plain,omitempty"` // the copy holds ranges alone, not what the server sent
}

// older says that a copy is older than that, or that its age is not known, since the clock
// was set back: 0 is any age.
func (i *copyInfo) older(refresh time.Duration) bool {
	age := time.Since(i.Fetched)
	return refresh > 0 && (age >= refresh || age < 0)
}

// Open gives the copy of a list, fetched again where there is none or where it
// is older than refresh. A zero refresh takes a copy of any age.
func (s *Store) Open(url string, refresh time.Duration) (io.ReadCloser, string, error) {
	path := s.path(url)
	info, err := s.info(path)
	if err != nil {
		return nil, "", err
	}
	have := !info.Fetched.IsZero()
	fresh := have && !info.older(refresh)
	if !fresh && !s.Offline {
		if err := s.fetch(url, path, info); err != nil {
			if !have {
				return nil, "", fmt.Errorf("no copy of the list yet, and the download failed: %w", err)
			}
			s.warn(&StaleError{err, info.Fetched})
		}
	}
	return copyOf(url, path)
}

// Copy is the copy of a list, of any age; nil where there is none. No server is asked.
func (s *Store) Copy(url string) (io.ReadCloser, error) {
	path := s.path(url)
	info, err := s.info(path)
	if err != nil || info.Fetched.IsZero() {
		return nil, err
	}
	text, _, err := copyOf(url, path)
	return text, err
}

// Put makes a text the copy of a list, unless it is that already: as somebody has fetched it
// before, nobody knows when.
func (s *Store) Put(url string, text []byte) error {
	path := s.path(url)
	info, err := s.info(path)
	if err != nil {
		return err
	}
	if has, err := regular.Read(path, maxCopy); err == nil && !info.Fetched.IsZero() && bytes.Equal(has, text) {
		return nil
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	if err := renameio.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	return s.keepInfo(path, copyInfo{URL: fetch.Redact(url), Fetched: time.Unix(0, 0), Plain: true})
}

// copyOf opens what there is of a list, and says what it is called.
func copyOf(url, path string) (io.ReadCloser, string, error) {
	f, err := openCopy(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("no copy of %s yet", fetch.Redact(url))
	}
	if err != nil {
		return nil, "", err
	}
	return f, fetch.Redact(url), nil
}

// openCopy opens a copy, which is a file and no larger than one can be.
func openCopy(path string) (*os.File, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() > maxCopy {
		err = &fs.PathError{Op: "read", Path: path, Err: regular.ErrLarge}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (s *Store) warn(err *StaleError) {
	if s.Warn != nil {
		s.Warn(err)
	}
}

func (s *Store) path(url string) string {
	sum := sha256.Sum256([]byte(url))
	return filepath.Join(s.Dir, hex.EncodeToString(sum[:12])+".txt")
}

// info gives what is known of a copy; a copy without its info, or the other
// way round, is none.
func (s *Store) info(path string) (copyInfo, error) {
	var info copyInfo
	data, err := regular.Read(path+".json", maxInfo)
	if errors.Is(err, fs.ErrNotExist) || regular.Unfit(err) {
		return info, nil
	}
	if err != nil {
		return info, err
	}
	if json.Unmarshal(data, &info) != nil {
		return copyInfo{}, nil //nolint:nilerr // a damaged copy is none: the list is fetched again
	}
	f, err := openCopy(path)
	if err != nil {
		return copyInfo{}, nil //nolint:nilerr // the same
	}
	_ = f.Close()
	if !info.Plain { // asked for whole the next time
		info.ETag, info.Modified = "", ""
	}
	return info, nil
}

func (s *Store) fetch(url, path string, old copyInfo) error {
	ctx := s.Context
	if ctx == nil {
		ctx = context.Background()
	}
	got, info, err := s.request(ctx, url, old)
	if err != nil {
		return err
	}
	if !got.notModified {
		if err := keep(url, path, got); err != nil {
			got.discard()
			return err
		}
	}
	return s.keepInfo(path, info)
}

func keep(url, path string, got *fetched) error {
	if _, err := checked(url, got.path, path); err != nil {
		return err
	}
	return got.keep(path)
}

func (s *Store) keepInfo(path string, info copyInfo) error {
	data, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(path+".json", data, 0o600)
}
