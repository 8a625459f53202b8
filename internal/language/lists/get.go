package lists

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/fetch"
	"sluice/internal/base/regular"
	"sluice/internal/language/apart"
	"sluice/internal/language/resolve"
)

// Kind is what questions for lists are of.
const Kind = "list"

// maxLines bounds what a process may hand back: a line has a byte and its end.
const maxLines = maxBytes / 2

// Read reads a list; the tag of each range is its line.
func Read(name string, text io.Reader, add func(apart.Row)) (apart.About, error) {
	return apart.About{}, resolve.ReadSetLines(name, text, func(r addrset.Range, line int) {
		add(apart.Row{Tag: uint32(line), Range: r}) //nolint:gosec // of a text of at most maxBytes
	})
}

// fetched is a list that has come and is not in use yet.
type fetched struct {
	path           string // a temporary file; see keep and discard
	etag, modified string
	notModified    bool // there is no file, since the copy still holds
	kept           bool // path is no temporary file any more
}

// keep moves the temporary file to dest, which is on the same file system, in one
// step that survives a crash.
func (f *fetched) keep(dest string) error {
	if err := os.Rename(f.path, dest); err != nil {
		return err
	}
	f.path, f.kept = dest, true
	return regular.SyncDir(filepath.Dir(dest))
}

// discard removes the temporary file; what was kept stays.
func (f *fetched) discard() {
	if f.path != "" && !f.kept {
		_ = os.Remove(f.path)
	}
}

// request asks for a list of which old is known. It says what there is to know of what came,
// which is for the caller to keep or to discard.
func (s *Store) request(ctx context.Context, url string, old copyInfo) (*fetched, copyInfo, error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, old, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
	defer cancel()
	now := time.Now()
	got, err := s.get(ctx, url, old)
	if err != nil {
		return nil, old, err
	}
	if got.notModified {
		old.Fetched = now
		return got, old, nil
	}
	return got, copyInfo{URL: fetch.Redact(url), Fetched: now, ETag: got.etag, Modified: got.modified, Plain: true}, nil
}

// get asks the server for a list and writes its ranges down in the folder: one a line, on the
// lines where the server has them.
func (s *Store) get(ctx context.Context, url string, old copyInfo) (*fetched, error) {
	file, err := os.CreateTemp(s.Dir, ".fetch-*")
	if err != nil {
		return nil, err
	}
	got := &fetched{path: file.Name()}
	keeping := false
	defer func() {
		_ = file.Close()
		if !keeping {
			got.discard()
		}
	}()
	w := newWriter(file)
	p := apart.Process{Command: s.Child, Readers: apart.Readers{Kind: Read}, Unconfined: s.Unconfined}
	a, err := p.Ask(ctx, apart.Question{Kind: Kind, From: url, MaxBytes: maxBytes, ETag: old.ETag, Modified: old.Modified}, w.add)
	if err == nil {
		err = w.flush()
	}
	switch {
	case err != nil:
		return nil, err
	case a.NotModified && old.Fetched.IsZero():
		return nil, fmt.Errorf("%s: the server says that nothing has changed, but there is no copy here", fetch.Redact(url))
	case a.NotModified:
		return &fetched{notModified: true}, nil
	}
	if err := file.Sync(); err != nil {
		return nil, err
	}
	keeping = true
	got.etag, got.modified = a.ETag, a.Modified
	return got, nil
}
