package geo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/rogpeppe/go-internal/lockedfile"
	"golang.org/x/sys/unix"

	"sluice/internal/base/addrset"
	"sluice/internal/base/cache"
	"sluice/internal/base/fetch"
	"sluice/internal/base/regular"
	"sluice/internal/language/apart"
)

// maxDownload bounds one source as it is fetched.
const maxDownload = 1 << 28

// maxRows bounds the ranges of one source; the largest that is known has 700,000.
const maxRows = 1 << 24

// wholeDownload is how long one source may take, however steadily it drips.
const wholeDownload = 30 * time.Minute

// minShare is the share of the addresses of either family, in percent, that an
// update has to keep; less looks like a file that was cut off.
const minShare = 80

// UpdateOptions says where an update comes from.
type UpdateOptions struct {
	StateDir string
	// From are known publishers, NAME=PLACE or PLACE, which is a URL or a file. The places of
	// one name, as of none, are one publisher's: one for each family or registry where they
	// come apart. Of several publishers the one that is named first decides.
	From     []string
	SHA256   string    // that the one source has to have; "" is any
	Date     time.Time // of the data, over what they say themselves; zero is what they say
	Force    bool      // take fewer addresses than minShare allows, too
	Progress func(from string, done, total int64)
	Process  apart.Process // that fetches and reads; without a command this one does
}

// Kind is what questions for country data are of.
const Kind = "countries"

// UpdateResult says what an update did.
type UpdateResult struct {
	Changed bool `json:"changed"` // false: the data are those that were there
	Info    Info `json:"info"`    // of the data that are in use now
	Diff    Diff `json:"diff"`    // to the data that were in use before
	// Publishers are those that the data are of, where they are several.
	Publishers []Publisher `json:"publishers,omitempty"`
}

// ShrunkError refuses data with far fewer addresses than those in use.
type ShrunkError struct {
	Family   string // "IPv4" or "IPv6"
	Old, New string // what is in use and what was refused, as text
	Percent  int64
}

// Error says by how much.
func (e *ShrunkError) Error() string {
	return fmt.Sprintf("the new data have only %d%% of the %s addresses of those in use (%s instead of %s); keeping the old data", e.Percent, e.Family, e.New, e.Old)
}

// InUseError refuses to replace data that cannot be read, unless it is forced.
type InUseError struct{ Err error }

func (e *InUseError) Error() string { return e.Err.Error() }
func (e *InUseError) Unwrap() error { return e.Err }

// Update fetches and checks data, and puts them in place of those in use,
// which are kept as the previous ones. Two updates at once wait for each other.
// On any error the data in use stay.
func Update(ctx context.Context, o UpdateOptions) (*UpdateResult, error) {
	if len(o.From) == 0 {
		return nil, errors.New("no source to update from")
	}
	if o.SHA256 != "" && len(o.From) > 1 {
		return nil, errors.New("a checksum needs a single file, but there are several to update from")
	}
	if err := os.MkdirAll(filepath.Join(o.StateDir, folder), 0o700); err != nil {
		return nil, err
	}
	unlock, err := lock(o.StateDir)
	if err != nil {
		return nil, err
	}
	defer unlock()

	current, err := Open(o.StateDir)
	if err != nil && !o.Force {
		return nil, &InUseError{err}
	}
	if err != nil {
		if current, err = Snapshot(); err != nil {
			return nil, err
		}
	}
	data, publishers, err := gather(ctx, o, current)
	if err != nil {
		return nil, err
	}
	if data == nil {
		return &UpdateResult{Info: current.Info()}, nil
	}
	out, err := install(o, current, data)
	if err == nil {
		out.Publishers = publishers
	}
	return out, err
}

// lock keeps other updates waiting.
func lock(stateDir string) (unlock func(), err error) {
	return lockedfile.MutexAt(filepath.Join(stateDir, folder, "lock")).Lock()
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
	data, err := regular.Read(file, MaxFile)
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
func gather(ctx context.Context, o UpdateOptions, current *Database) ([]byte, []Publisher, error) {
	var names []string
	var tables []*Table
	var origins []Origin
	for _, from := range o.From {
		name, place := sourceOf(from, time.Now())
		at := slices.Index(names, name)
		if at < 0 {
			at = len(names)
			names, tables = append(names, name), append(tables, &Table{})
		}
		q := apart.Question{Kind: Kind, From: place, MaxBytes: maxDownload, SHA256: o.SHA256, Whole: wholeDownload}
		if o.Progress != nil {
			q.Progress = func(done, total int64) { o.Progress(place, done, total) }
		}
		had := current.Info().Origin
		if len(o.From) == 1 && !current.Info().BuiltIn && !o.Force && len(had.From) == 1 && had.From[0] == fetch.Redact(from) && fetch.IsURL(place) {
			q.ETag = had.ETag
			if had.ETag == "" {
				q.Modified = had.Modified
			}
		}
		a, err := ask(ctx, o.Process, q, tables[at])
		if err != nil {
			return nil, nil, err
		}
		if a.NotModified {
			return nil, nil, nil
		}
		origin := originOf(a, place)
		if place != from && name == from {
			origin.From = []string{name}
		} else if place != from {
			origin.From[0] = name + "=" + origin.From[0]
		}
		origins = append(origins, origin)
	}
	m := merge(origins)
	if !o.Date.IsZero() {
		m.Date = o.Date
	}
	table, publishers := tables[0], []Publisher(nil)
	if len(tables) > 1 {
		table, publishers = combined(names, tables)
	}
	data, err := table.Encode(m)
	return data, publishers, err
}

// ask has one source read into a table.
func ask(ctx context.Context, p apart.Process, q apart.Question, table *Table) (apart.Answer, error) {
	p.Readers = apart.Readers{Kind: ReadRows}
	left := maxRows
	return p.Ask(ctx, q, func(r apart.Row) error {
		if left--; left < 0 {
			return fmt.Errorf("it is one of more than %d", maxRows)
		}
		return table.Add(r.Range.From, r.Range.To, codeOf(r.Tag))
	})
}

// ReadRows reads one source; the tag of each range is its country.
func ReadRows(name string, text io.Reader, add func(apart.Row)) (apart.About, error) {
	var t Table
	o, err := Read(text, name, &t)
	if err != nil {
		return apart.About{}, err
	}
	hand := func(rows []row, is4 bool) {
		for _, r := range rows {
			add(apart.Row{Tag: tagOf(t.codes[r.code]), Range: addrset.Range{From: r.from.Addr(is4), To: r.to.Addr(is4)}})
		}
	}
	hand(t.v4, true)
	hand(t.v6, false)
	return apart.About{Source: o.Source, Licence: o.Licence, Attribution: o.Attribution, Date: o.Date}, nil
}

// tagOf is a country code as a tag, its letters in the two low bytes.
func tagOf(code string) uint32 { return uint32(code[0])<<8 | uint32(code[1]) }

// codeOf is no code where the tag is none.
func codeOf(tag uint32) string {
	if tag > 0xffff {
		return ""
	}
	return string([]byte{byte(tag >> 8), byte(tag)})
}

// originOf is what a source says of itself, and where it is from.
func originOf(a apart.Answer, from string) Origin {
	shown := fetch.Redact(from)
	origin := Origin{From: []string{shown}, Source: a.About.Source, Licence: a.About.Licence, Attribution: a.About.Attribution, Date: a.About.Date}
	// A URL may name the file only in its answer.
	if named := originByName(a.Name); origin.Licence == "" && named.Licence != "" {
		origin.Source, origin.Licence, origin.Attribution = named.Source, named.Licence, named.Attribution
	}
	if origin.Date.IsZero() {
		origin.Date = originByName(a.Name).Date
	}
	// Archives set times of long ago for files whose time they do not know.
	if d, err := http.ParseTime(a.Modified); err == nil && origin.Date.IsZero() && d.Year() >= 2000 {
		origin.Date = d.UTC()
	}
	if fetch.IsURL(from) {
		origin.ETag, origin.Modified = a.ETag, a.Modified
	} else if abs, err := filepath.Abs(from); err == nil {
		origin.From = []string{abs}
	}
	return origin
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
func ReadFiles(ctx context.Context, p apart.Process, files ...string) (*Database, error) {
	if len(files) == 1 && !fetch.IsURL(files[0]) {
		d, err := OpenFile(files[0])
		if err == nil || !errors.Is(err, errForeign) {
			return d, err
		}
	}
	data, _, err := gather(ctx, UpdateOptions{From: files, Process: p}, &Database{file: &file{}})
	if err != nil {
		return nil, err
	}
	return Decode(data)
}

// errNoUpdate is said where the built-in data have always been in use.
var errNoUpdate = errors.New("no update yet: the built-in data are in use")

// openEither opens data in use or the previous ones: the built-in snapshot stands for those
// that have no file, unless neither has one.
func openEither(stateDir, file string) (*Database, error) {
	d, err := OpenFile(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	for _, other := range []string{CurrentFile(stateDir), PreviousFile(stateDir)} {
		if _, err := os.Stat(other); err == nil {
			return Snapshot()
		}
	}
	return nil, errNoUpdate
}

// OpenPrevious returns the data that the last update, or Undo, replaced: those before it, or
// the built-in snapshot when there were none.
func OpenPrevious(stateDir string) (*Database, error) {
	return openEither(stateDir, PreviousFile(stateDir))
}

// Undo makes the previous data those in use, and those in use the previous ones: done
// twice, it changes nothing.
func Undo(stateDir string) (*UpdateResult, error) {
	file, previous := CurrentFile(stateDir), PreviousFile(stateDir)
	if _, err := OpenPrevious(stateDir); err != nil {
		return nil, err // before a lock makes a file
	}
	unlock, err := lock(stateDir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	next, err := OpenPrevious(stateDir)
	if err != nil {
		return nil, err
	}
	var diff Diff
	if current, err := openEither(stateDir, file); err == nil { // else they are damaged, and are to be left
		if diff, err = Compare(current, next); err != nil {
			return nil, err
		}
	}
	from, to, how := previous, file, uint(unix.RENAME_EXCHANGE)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		how = 0
	} else if _, err := os.Stat(previous); errors.Is(err, fs.ErrNotExist) {
		from, to, how = file, previous, 0
	}
	if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, how); err != nil {
		return nil, fmt.Errorf("exchange %s and %s: %w", file, previous, err)
	}
	now, err := Open(stateDir)
	if err != nil {
		return nil, err
	}
	return &UpdateResult{Changed: true, Info: now.Info(), Diff: diff}, nil
}

// WithSum opens the data whose sum is given in hexadecimal digits: those in use, the
// previous ones or the built-in ones. It is nil where none of them has it.
func WithSum(stateDir, sum string) *Database {
	for _, open := range []func() (*Database, error){
		func() (*Database, error) { return OpenFile(CurrentFile(stateDir)) },
		func() (*Database, error) { return OpenFile(PreviousFile(stateDir)) },
		Snapshot,
	} {
		if d, err := open(); err == nil && fmt.Sprintf("%x", d.Sum()) == sum {
			d.cache = cache.Below(stateDir)
			return d
		}
	}
	return nil
}
