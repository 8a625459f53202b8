package geo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/rogpeppe/go-internal/lockedfile"

	"sluice/internal/fetch"
)

// maxDownload bounds one source as it is fetched.
const maxDownload = 1 << 29

// wholeDownload is how long one source may take, however steadily it drips.
const wholeDownload = 30 * time.Minute

// minShare is the share of the addresses of either family, in percent, that an
// update has to keep; less looks like a file that was cut off.
const minShare = 80

// UpdateOptions says where an update comes from.
type UpdateOptions struct {
	StateDir string
	From     []string  // URLs or files; one for each family or registry where they come apart
	SHA256   string    // that the one source has to have; "" is any
	Date     time.Time // of the data, over what they say themselves; zero is what they say
	Force    bool      // take fewer addresses than minShare allows, too
	Progress func(from string, done, total int64)
}

// UpdateResult says what an update did.
type UpdateResult struct {
	Changed bool `json:"changed"` // false: the data are those that were there
	Info    Info `json:"info"`    // of the data that are in use now
	Diff    Diff `json:"diff"`    // to the data that were in use before
}

// ShrunkError refuses data with far fewer addresses than those in use.
type ShrunkError struct {
	Family   string // "IPv4" or "IPv6"
	Old, New string // what is in use and what was refused, as text
	Percent  int64
}

// Error says by how much and how to take the data all the same.
func (e *ShrunkError) Error() string {
	return fmt.Sprintf("the new data have %d %% of the %s addresses of those in use (%s instead of %s); the old data stay\n"+
		"hint: a file that was cut off looks like this; if it is meant, for another publisher counts differently, give --force",
		e.Percent, e.Family, e.New, e.Old)
}

// Update fetches and checks data, and puts them in the place of those in use,
// which are kept as the previous ones. Two updates at once wait for each other.
// On any error the data in use stay.
func Update(ctx context.Context, o UpdateOptions) (*UpdateResult, error) {
	if len(o.From) == 0 {
		return nil, errors.New("there is nowhere to update from")
	}
	if o.SHA256 != "" && len(o.From) > 1 {
		return nil, errors.New("a checksum is of one file, and there are several to update from")
	}
	dir := filepath.Join(o.StateDir, folder)
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	unlock, err := lockedfile.MutexAt(filepath.Join(dir, "lock")).Lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	current, err := Open(o.StateDir)
	if err != nil && !o.Force {
		return nil, fmt.Errorf("%w\nhint: --force replaces what cannot be read", err)
	}
	if err != nil {
		if current, err = Snapshot(); err != nil {
			return nil, err
		}
	}
	data, err := gather(ctx, dir, o, current)
	if err != nil {
		return nil, err
	}
	if data == nil {
		return &UpdateResult{Info: current.Info()}, nil
	}
	return install(o, current, data)
}

// install puts data in use if they may replace current.
func install(o UpdateOptions, current *Database, data []byte) (*UpdateResult, error) {
	next, err := Decode(data)
	if err != nil {
		return nil, err
	}
	if !o.Force {
		if err := checkShrunk(current.Info().Total, next.Info().Total); err != nil {
			return nil, err
		}
	}
	diff, err := Compare(current, next)
	if err != nil {
		return nil, err
	}
	file := CurrentFile(o.StateDir)
	// The same ranges of the same origin are still noted, for their date and
	// ETag, but do not push the previous data out.
	if len(diff.Countries) > 0 {
		if err := keepPrevious(file, PreviousFile(o.StateDir)); err != nil {
			return nil, err
		}
	}
	if err := renameio.WriteFile(file, data, 0o644); err != nil {
		return nil, err
	}
	now, err := OpenFile(file)
	if err != nil {
		return nil, err
	}
	return &UpdateResult{Changed: len(diff.Countries) > 0, Info: now.Info(), Diff: diff}, nil
}

// keepPrevious makes the data in use the previous ones too, in one step; the
// snapshot needs no keeping.
func keepPrevious(file, previous string) error {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		err := os.Remove(previous)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if err != nil {
		return err
	}
	return renameio.WriteFile(previous, data, 0o644)
}

func checkShrunk(old, next Counts) error {
	for _, f := range [...]struct {
		name, old, next string
		o, n            *big.Int
	}{
		{
			"IPv4", fmt.Sprint(old.Addresses4), fmt.Sprint(next.Addresses4),
			new(big.Int).SetUint64(old.Addresses4), new(big.Int).SetUint64(next.Addresses4),
		},
		{
			"IPv6", old.Addresses6.String() + " /64 networks", next.Addresses6.String() + " /64 networks",
			old.Addresses6.Big(), next.Addresses6.Big(),
		},
	} {
		have := new(big.Int).Mul(f.n, big.NewInt(100))
		if want := new(big.Int).Mul(f.o, big.NewInt(minShare)); have.Cmp(want) < 0 {
			return &ShrunkError{Family: f.name, Old: f.old, New: f.next, Percent: have.Div(have, f.o).Int64()}
		}
	}
	return nil
}

// gather fetches and reads all sources and returns them in the compact form, or
// nil when the server says that the data in use still hold.
func gather(ctx context.Context, dir string, o UpdateOptions, current *Database) ([]byte, error) {
	var table Table
	var origins []Origin
	for _, from := range o.From {
		req := fetch.Request{From: from, MaxBytes: maxDownload, SHA256: o.SHA256, Whole: wholeDownload}
		if o.Progress != nil {
			req.Progress = func(done, total int64) { o.Progress(from, done, total) }
		}
		had := current.Info().Origin
		if len(o.From) == 1 && !current.Info().BuiltIn && !o.Force && len(had.From) == 1 && had.From[0] == fetch.Redact(from) && fetch.IsURL(from) {
			req.ETag = had.ETag
			if had.ETag == "" {
				req.Modified = had.Modified
			}
		}
		res, err := fetch.Fetch(ctx, dir, req)
		if err != nil {
			return nil, err
		}
		if res.NotModified {
			return nil, nil
		}
		origin, err := readFetched(res, from, &table)
		if err != nil {
			return nil, err
		}
		origins = append(origins, origin)
	}
	m := merge(origins)
	if !o.Date.IsZero() {
		m.Date = o.Date
	}
	return table.Encode(m)
}

func readFetched(res *fetch.Result, from string, table *Table) (Origin, error) {
	defer res.Discard()
	f, err := os.Open(res.Path)
	if err != nil {
		return Origin{}, err
	}
	defer func() { _ = f.Close() }()
	shown := fetch.Redact(from)
	origin, err := Read(f, shown, table)
	if err != nil {
		return origin, err
	}
	// A URL may name the file only in its answer.
	if named := originByName(res.Name); origin.Licence == "" && named.Licence != "" {
		origin.Source, origin.Licence, origin.Attribution = named.Source, named.Licence, named.Attribution
	}
	if origin.Date.IsZero() {
		origin.Date = originByName(res.Name).Date
	}
	// Archives set times of long ago for files whose time they do not know.
	if d, err := http.ParseTime(res.Modified); err == nil && origin.Date.IsZero() && d.Year() >= 2000 {
		origin.Date = d.UTC()
	}
	origin.From = []string{shown}
	if fetch.IsURL(from) {
		origin.ETag, origin.Modified = res.ETag, res.Modified
	} else if abs, err := filepath.Abs(from); err == nil {
		origin.From = []string{abs}
	}
	return origin, nil
}

// merge makes one origin of those of several sources; the data are as old as the
// oldest of them.
func merge(origins []Origin) Origin {
	m := origins[0]
	for _, o := range origins[1:] {
		m.Source = addWord(m.Source, o.Source)
		m.Licence = addWord(m.Licence, o.Licence)
		m.Attribution = addWord(m.Attribution, o.Attribution)
		m.From = append(m.From, o.From...)
		if !o.Date.IsZero() && (m.Date.IsZero() || o.Date.Before(m.Date)) {
			m.Date = o.Date
		}
		m.ETag, m.Modified = "", ""
	}
	return m
}

func addWord(list, word string) string {
	switch {
	case word == "" || strings.Contains(list, word):
		return list
	case list == "":
		return word
	}
	return list + ", " + word
}

// ReadFiles reads source files into a database without installing it, for
// comparing. A file in the compact form is taken as it is.
func ReadFiles(ctx context.Context, files ...string) (*Database, error) {
	if len(files) == 1 && !fetch.IsURL(files[0]) {
		d, err := OpenFile(files[0])
		if err == nil || !errors.Is(err, errForeign) {
			return d, err
		}
	}
	dir, err := os.MkdirTemp("", "sluice-geo-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	data, err := gather(ctx, dir, UpdateOptions{From: files}, &Database{file: &file{}})
	if err != nil {
		return nil, err
	}
	return Decode(data)
}

// OpenPrevious returns the data that the last update replaced: those before it,
// or the built-in snapshot when it was the first.
func OpenPrevious(stateDir string) (*Database, error) {
	if _, err := os.Stat(CurrentFile(stateDir)); errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("there has been no update: the built-in data are in use")
	}
	d, err := OpenFile(PreviousFile(stateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return Snapshot()
	}
	return d, err
}
