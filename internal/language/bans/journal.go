package bans

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"sluice/internal/base/regular"
)

// File is the name of the journal in a state directory.
const File = "bans.journal"

// format is the version of the lines, newest that of those with bans of a fleet.
const (
	format = 1
	newest = 2
)

func (e *Entry) number() {
	if e.Format = format; len(e.Fleet) > 0 || e.LiftedFleet != "" {
		e.Format = newest
	}
}

// settled is the JSON of the line that says that the kernel has it all.
const settled = `{"settled":true}`

// Journal is the file. Who writes holds the lock of its directory.
type Journal struct {
	path string
	last *reading
	now  func() Moment
}

// reading is what a journal came to when it was read last.
type reading struct {
	list  *List
	began time.Time // of the boot, as the list goes by
	fleet bool      // the file may have bans of a fleet, as Intact and Append saw it
	// text is the sum of the file as Intact read it and Append wrote it since; nil: it
	// is not known. length is its length.
	text   hash.Hash
	length int64
}

// Open names the journal of a state directory; it need not be there.
func Open(dir string) Journal { return Journal{filepath.Join(dir, File), &reading{}, Now} }

// By is the journal by other clocks.
func (j Journal) By(now func() Moment) Journal {
	j.now = now
	return j
}

// List is what a journal comes to.
type List struct {
	Bans      []Ban  // sorted by what they ban; those that are over too
	Countries []Ban  // sorted by their codes; those that are over too
	Settled   bool   // the kernel was given all of it
	Damaged   []int  // lines that could not be read, from 1
	Sum       string // of the text; "" of one that could not be read
}

// NewerError says that a newer Sluice wrote the journal.
type NewerError struct{ Path string }

func (e *NewerError) Error() string {
	return e.Path + " was written by a newer sluice\n  hint: use that version"
}

// Append writes entries to the end, and waits until the disk has them. It says
// how long the journal was before, for Undo.
func (j Journal) Append(entries ...Entry) (before int64, err error) {
	return j.append(true, entries...)
}

// Size is how long the journal is, in bytes.
func (j Journal) Size() (int64, error) {
	info, err := os.Stat(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the journal of bans: %w", err)
	}
	return info.Size(), nil
}

// Undo takes back what Append wrote.
func (j Journal) Undo(before int64) error {
	j.last.text = nil
	if err := os.Truncate(j.path, before); err != nil {
		return fmt.Errorf("write the journal of bans: %w", err)
	}
	return nil
}

// Settle notes that the kernel has all of the journal. It need not survive a
// loss of power, after which the kernel has nothing.
func (j Journal) Settle() error {
	_, err := j.append(false, Entry{Settled: true})
	return err
}

func (j Journal) append(sync bool, entries ...Entry) (before int64, err error) {
	var lines []byte
	for _, e := range entries {
		if !e.Settled {
			e.number()
			e.stamp(j.now())
		}
		line, err := encode(e)
		if err != nil {
			return 0, err
		}
		lines = append(lines, line...)
	}
	made := false
	file, err := regular.OpenFile(j.path, os.O_RDWR|os.O_APPEND, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		made = true
		file, err = regular.OpenFile(j.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	}
	if err != nil {
		return 0, fmt.Errorf("open the journal of bans: %w", err)
	}
	defer file.Close()
	// What a killed command left unfinished must not swallow the first line.
	before, whole, err := end(file)
	if err != nil {
		return 0, fmt.Errorf("read the journal of bans: %w", err)
	}
	if !whole {
		lines = append([]byte{'\n'}, lines...)
	}
	if j.last.length != before {
		j.last.text = nil
	}
	failed := func(err error) (int64, error) {
		j.last.text = nil
		_ = file.Truncate(before) // none of them counts
		return 0, fmt.Errorf("write the journal of bans: %w", err)
	}
	if _, err := file.Write(lines); err != nil {
		return failed(err)
	}
	j.last.fleet = j.last.fleet || slices.ContainsFunc(entries, func(e Entry) bool { return len(e.Fleet) > 0 })
	if j.last.text != nil {
		j.last.text.Write(lines)
		j.last.length += int64(len(lines))
	}
	if !sync {
		return before, nil
	}
	if err := syncData(file); err != nil {
		return failed(err)
	}
	if made {
		return before, syncDir(filepath.Dir(j.path))
	}
	return before, nil
}

// syncData waits until the disk has what was written, and the length that it needs to
// be read, but no times.
func syncData(file *os.File) error {
	for {
		if err := unix.Fdatasync(int(file.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func syncDir(path string) error {
	if err := regular.SyncDir(path); err != nil {
		return fmt.Errorf("write the journal of bans: %w", err)
	}
	return nil
}

// end says how long the file is, and whether its last line is whole.
func end(file *os.File) (size int64, whole bool, err error) {
	size, err = file.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return size, true, err
	}
	var last [1]byte
	_, err = file.ReadAt(last[:], size-1)
	return size, last[0] == '\n', err
}

// mostBytes is what is read of a journal: one that is rewritten when it is long has
// some 32 bytes for each ban.
const mostBytes = 1 << 30

// Settled says whether the kernel was given all of the journal, without reading
// the whole of it; of a journal that is not there, it was.
func (j Journal) Settled() (bool, error) {
	file, err := regular.Open(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if regular.Unfit(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open the journal of bans: %w", err)
	}
	defer file.Close()
	last, err := encode(Entry{Settled: true})
	if err != nil {
		return false, err
	}
	last = append([]byte{'\n'}, last...)
	size, err := file.Seek(0, io.SeekEnd)
	if err == nil && size >= int64(len(last)) {
		got := make([]byte, len(last))
		if _, err = file.ReadAt(got, size-int64(len(last))); err == nil {
			return bytes.Equal(got, last), nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("read the journal of bans: %w", err)
	}
	return size == 0, nil
}

// Intact says whether the checksum of every whole line holds. It costs a small part
// of what Read does.
func (j Journal) Intact() (bool, error) {
	data, err := regular.Read(j.path, mostBytes)
	j.last.text, j.last.length = sha256.New(), int64(len(data))
	j.last.fleet = bytes.Contains(data, []byte(`"fleet":[`))
	j.last.text.Write(data)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if regular.Unfit(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the journal of bans: %w", err)
	}
	for {
		line, rest, whole := bytes.Cut(data, []byte{'\n'})
		if !whole {
			return true, nil
		}
		data = rest
		if _, good := body(line); len(line) > 0 && !good {
			return false, nil
		}
	}
}

// HasFleet says whether there may be bans of a fleet, by what Intact and Append saw last.
func (j Journal) HasFleet() bool { return j.last.fleet }

// Forget forgets what was read, which may be large.
func (j Journal) Forget() { j.last.list = nil }

// Read reads the journal; one that is not there bans nothing and is settled. In place of
// what is not a file, or larger than one can be, it gives one damaged line. A text that was
// read before is not parsed again unless the clock was set since; the bans of both lists are the same, and not to be written to.
func (j Journal) Read() (*List, error) {
	data, err := regular.Read(j.path, mostBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return &List{Settled: true, Sum: sumOf(nil)}, nil
	}
	if regular.Unfit(err) {
		return &List{Damaged: []int{1}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the journal of bans: %w", err)
	}
	of, now := sumOf(data), j.now()
	if j.last.list == nil || j.last.list.Sum != of || now.began().Sub(j.last.began).Abs() >= jumpTime {
		list, err := parse(data, now)
		if errors.Is(err, errNewer) {
			return nil, &NewerError{j.path}
		}
		if err != nil {
			return nil, err
		}
		list.Sum = of
		j.last.list, j.last.began = list, now.began()
	}
	list := *j.last.list
	return &list, nil
}

// Sum is that of the text, as List has it, without reading what it says.
func (j Journal) Sum() (string, error) {
	data, err := regular.Read(j.path, mostBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the journal of bans: %w", err)
	}
	return sumOf(data), nil
}

// Written is the sum of the text that Intact read with what was appended to it; "" where
// it is not known.
func (j Journal) Written() string {
	if j.last.text == nil {
		return ""
	}
	return hex.EncodeToString(j.last.text.Sum(nil))
}

func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// A journal is worth writing again when it is longer than worthIt and factor
// times what it comes to. A ban takes about bytesOfBan in one that was, and bans that have
// all but the address in common bytesOfGroup together, beside their reason.
const (
	worthIt      = 64 << 10
	factor       = 4
	bytesOfBan   = 32
	bytesOfGroup = 160
)

// keptKey is what bans of a keptGroup have in common.
type keptKey struct {
	since, until time.Time
	by           Author
	reason       string
	incarnation  int64
}

func keptKeyOf(b Ban) keptKey { return keptKey{b.Since, b.Until, b.By, b.Reason, b.Incarnation} }

func keptOf(g *group[keptKey]) keptGroup {
	k := g.key
	return keptGroup{Group{k.until, k.reason, Words(g.ranges)}, k.since, k.by}
}

// Long says whether the journal should be rewritten, going by its size and
// by what it comes to now.
func (j Journal) Long(list *List, now time.Time) bool {
	size, err := j.Size()
	live := list.Live(now)
	count := len(live.Bans)
	for _, b := range live.Countries {
		count += b.Country.Set.Len4() + b.Country.Set.Len6()
	}
	comesTo := bytesOfBan * int64(count)
	if err != nil || size <= worthIt+factor*comesTo {
		return false
	}
	apart := map[keptKey]bool{}
	for _, b := range live.All() {
		if k := keptKeyOf(b); !apart[k] {
			apart[k] = true
			comesTo += bytesOfGroup + int64(len(b.Reason))
		}
	}
	return size > worthIt+factor*comesTo
}

// Rewrite puts a journal of nothing but these bans in place of the old one,
// so that a crash leaves the one or the other. It is not settled. What was
// damaged is kept beside it.
func (j Journal) Rewrite(list *List) error {
	j.last.text = nil
	e := Entry{Countries: countryGroups(list.Countries), Fleet: fleetGroups(list.Bans)}
	for _, g := range groups(slices.DeleteFunc(slices.Clone(list.Bans), func(b Ban) bool { return b.ID != "" }), keptKeyOf) {
		e.Kept = append(e.Kept, keptOf(g))
	}
	e.number()
	e.stamp(j.now())
	line, err := encode(e)
	if err != nil {
		return err
	}
	if len(list.Damaged) > 0 {
		if err := os.Link(j.path, j.path+".damaged"); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("keep the damaged journal of bans: %w", err)
		}
	}
	if err := j.keepPast(); err != nil {
		return err
	}
	if err := renameio.WriteFile(j.path, line, 0o600, renameio.WithTempDir(filepath.Dir(j.path))); err != nil {
		return fmt.Errorf("write the journal of bans: %w", err)
	}
	return syncDir(filepath.Dir(j.path))
}
