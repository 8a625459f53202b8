package bans

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"sluice/internal/base/addrset"
	"sluice/internal/base/regular"
)

// File is the name of the journal in a state directory.
const File = "bans.journal"

// format is the version of the lines.
const format = 1

// settled is the JSON of the line that says that the kernel has it all.
const settled = `{"settled":true}`

// Journal is the file. Who writes holds the lock of its directory.
type Journal struct {
	path string
	last *reading
}

// reading is what a journal came to when it was read last.
type reading struct {
	list *List
	// text is the sum of the file as Intact read it and Append wrote it since; nil: it
	// is not known. length is its length.
	text   hash.Hash
	length int64
}

// Open names the journal of a state directory; it need not be there.
func Open(dir string) Journal { return Journal{filepath.Join(dir, File), &reading{}} }

// Group is bans that have all but the address in common.
type Group struct {
	Until  time.Time `json:"until,omitzero"`
	Reason string    `json:"reason,omitempty"`
	Bans   string    `json:"bans"` // addresses, prefixes and ranges, with a space between
}

// Entry is what one command did.
type Entry struct {
	Format  int         `json:"format,omitempty"`
	Time    time.Time   `json:"time,omitzero"`
	By      Author      `json:"by,omitzero"`
	Groups  []Group     `json:"ban,omitempty"`
	Lifted  string      `json:"lift,omitempty"` // as Group.Bans
	Settled bool        `json:"settled,omitempty"`
	Kept    []keptGroup `json:"kept,omitempty"` // everything, at the begin of a journal that was written anew
}

// keptGroup is a Group of a journal that was written anew.
type keptGroup struct {
	Group
	Since time.Time `json:"since"`
	By    Author    `json:"by,omitzero"`
}

// List is what a journal comes to.
type List struct {
	Bans    []Ban  // sorted by what they ban; those that are over too
	Settled bool   // the kernel was given all of it
	Damaged []int  // lines that could not be read, from 1
	Sum     string // of the text; "" of one that could not be read
}

// NewerError says that a newer Sluice wrote the journal.
type NewerError struct{ Path string }

func (e *NewerError) Error() string {
	return e.Path + " was written by a newer sluice\n  hint: use that one"
}

// Words joins ranges as Entry has them.
func Words(ranges []addrset.Range) string {
	var b strings.Builder
	for i, r := range ranges {
		if i > 0 {
			b.WriteByte(' ')
		}
		if r.From == r.To {
			b.Write(r.From.AppendTo(nil))
			continue
		}
		b.WriteString(r.String())
	}
	return b.String()
}

// EntryOf is the entry that bans a list, which has one author and time.
func EntryOf(list []Ban, now time.Time, by Author) Entry {
	e := Entry{Time: now, By: by}
	for _, g := range groups(list, func(b Ban) Group { return Group{Until: b.Until, Reason: b.Reason} }) {
		g.key.Bans = Words(g.ranges)
		e.Groups = append(e.Groups, g.key)
	}
	return e
}

type group[K any] struct {
	key    K
	ranges []addrset.Range
}

// groups puts together what has an equal key, in the order of the first.
func groups[K comparable](list []Ban, key func(Ban) K) []*group[K] {
	var out []*group[K]
	by := map[K]*group[K]{}
	for _, b := range list {
		k := key(b)
		g := by[k]
		if g == nil {
			g = &group[K]{key: k}
			by[k] = g
			out = append(out, g)
		}
		g.ranges = append(g.ranges, b.What)
	}
	return out
}

// Append writes an entry to the end, and waits until the disk has it. It says
// how long the journal was before, for Undo.
func (j Journal) Append(e Entry) (before int64, err error) { return j.append(e, true) }

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
	_, err := j.append(Entry{Settled: true}, false)
	return err
}

func (j Journal) append(e Entry, sync bool) (before int64, err error) {
	if !e.Settled {
		e.Format = format
	}
	line, err := encode(e)
	if err != nil {
		return 0, err
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
	// What a killed command left unfinished must not swallow this line.
	before, whole, err := end(file)
	if err != nil {
		return 0, fmt.Errorf("read the journal of bans: %w", err)
	}
	if !whole {
		line = append([]byte{'\n'}, line...)
	}
	if j.last.length != before {
		j.last.text = nil
	}
	if _, err := file.Write(line); err != nil {
		j.last.text = nil
		return 0, fmt.Errorf("write the journal of bans: %w", err)
	}
	if j.last.text != nil {
		j.last.text.Write(line)
		j.last.length += int64(len(line))
	}
	if !sync {
		return before, nil
	}
	if err := file.Sync(); err != nil {
		return 0, fmt.Errorf("write the journal of bans: %w", err)
	}
	if made {
		return before, syncDir(filepath.Dir(j.path))
	}
	return before, nil
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

// mostBytes is what is read of a journal: one that is written anew when it is long has
// some 32 bytes for each ban.
const mostBytes = 1 << 30

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(body []byte) uint32 { return crc32.Checksum(body, castagnoli) }

func encode(e Entry) ([]byte, error) {
	body, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode bans: %w", err)
	}
	return append(fmt.Appendf(make([]byte, 0, len(body)+10), "%08x %s", checksum(body), body), '\n'), nil
}

var errLine = errors.New("damaged line")

// body is the JSON of a line whose checksum holds.
func body(line []byte) (text []byte, good bool) {
	sum, text, found := bytes.Cut(line, []byte{' '})
	var want [4]byte
	if n, err := hex.Decode(want[:], sum[:min(len(sum), 8)]); !found || err != nil || n != 4 || len(sum) != 8 {
		return nil, false
	}
	return text, checksum(text) == binary.BigEndian.Uint32(want[:])
}

func decode(line []byte) (e Entry, err error) {
	text, good := body(line)
	if !good {
		return e, errLine
	}
	if string(text) == settled {
		return Entry{Settled: true}, nil
	}
	if json.Unmarshal(text, &e) != nil {
		return e, errLine
	}
	return e, nil
}

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

// Read reads the journal; one that is not there bans nothing and is settled. In place of
// what is no file, or larger than one can be, it gives one damaged line. A text that was
// read before is not parsed again; the bans of both lists are the same, and not to be written to.
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
	of := sumOf(data)
	if j.last.list == nil || j.last.list.Sum != of {
		list, err := parse(data)
		if errors.Is(err, errNewer) {
			return nil, &NewerError{j.path}
		}
		if err != nil {
			return nil, err
		}
		list.Sum = of
		j.last.list = list
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

var errNewer = errors.New("written by a newer sluice")

// parse reads the text of a journal.
func parse(data []byte) (*List, error) {
	list := &List{Settled: true}
	var edits []edit
	number := 0
	for len(data) > 0 {
		line, rest, whole := bytes.Cut(data, []byte{'\n'})
		data = rest
		number++
		if len(line) == 0 {
			continue
		}
		e, err := decode(line)
		if err == nil && e.Format > format {
			return nil, errNewer
		}
		if err == nil {
			edits, err = e.edits(edits)
		}
		switch {
		case err == nil:
			list.Settled = e.Settled
		case whole || len(rest) > 0:
			list.Damaged = append(list.Damaged, number)
			list.Settled = false
		default:
			list.Settled = false
		}
	}
	list.Bans = sum(edits)
	return list, nil
}

// edit is a ban, or where it has none the end of one.
type edit struct {
	what addrset.Range
	ban  *Ban // what it has in common with others
}

// edits is a list of edits with those of an entry, or without them where a part of it
// cannot be read.
func (e *Entry) edits(list []edit) ([]edit, error) {
	out := list
	add := func(text string, of *Ban) error {
		out = slices.Grow(out, strings.Count(text, " ")+1)
		for word := range strings.SplitSeq(text, " ") {
			if word == "" {
				continue
			}
			r, err := addrset.ParseRange(word)
			if err != nil {
				return errLine
			}
			out = append(out, edit{r, of})
		}
		return nil
	}
	if err := add(e.Lifted, nil); err != nil {
		return list, err
	}
	for _, g := range e.Groups {
		if err := add(g.Bans, &Ban{Since: e.Time, Until: g.Until, By: e.By, Reason: g.Reason}); err != nil {
			return list, err
		}
	}
	for _, g := range e.Kept {
		if err := add(g.Bans, &Ban{Since: g.Since, Until: g.Until, By: g.By, Reason: g.Reason}); err != nil {
			return list, err
		}
	}
	return out, nil
}

// sum is what edits come to: the last one of each range counts. Most journals are one
// long sorted list and a few edits behind it.
func sum(edits []edit) []Ban {
	compare := func(a, b edit) int { return a.what.Compare(b.what) }
	at := min(1, len(edits))
	for at < len(edits) && compare(edits[at-1], edits[at]) <= 0 {
		at++
	}
	head, tail := edits[:at], edits[at:]
	slices.SortStableFunc(tail, compare) //nolint:forbidigo // hundreds of thousands
	out := make([]Ban, 0, len(edits))
	var last edit
	end := func() {
		if last.ban != nil {
			out = append(out, *last.ban)
			out[len(out)-1].What = last.what
		}
	}
	for len(head)+len(tail) > 0 {
		from := &head
		if len(head) == 0 || len(tail) > 0 && compare(tail[0], head[0]) < 0 {
			from = &tail
		}
		if (*from)[0].what != last.what {
			end()
		}
		last, *from = (*from)[0], (*from)[1:]
	}
	end()
	return out
}

// A journal is worth writing anew when it is longer than worthIt and factor
// times what it comes to. A ban takes about bytesOfBan in one that was.
const (
	worthIt    = 64 << 10
	factor     = 4
	bytesOfBan = 32
)

// Long says whether the journal should be written anew, going by its size and
// by what it comes to.
func (j Journal) Long(list *List) bool {
	size, err := j.Size()
	return err == nil && size > worthIt+factor*bytesOfBan*int64(len(list.Bans))
}

// Rewrite puts a journal of nothing but these bans in the place of the old one,
// so that a crash leaves the one or the other. It is not settled. What was
// damaged is kept beside it.
func (j Journal) Rewrite(list *List) error {
	j.last.text = nil
	e := Entry{Format: format}
	type key struct {
		since, until time.Time
		by           Author
		reason       string
	}
	for _, g := range groups(list.Bans, func(b Ban) key { return key{b.Since, b.Until, b.By, b.Reason} }) {
		k := g.key
		e.Kept = append(e.Kept, keptGroup{Group{k.until, k.reason, Words(g.ranges)}, k.since, k.by})
	}
	line, err := encode(e)
	if err != nil {
		return err
	}
	if len(list.Damaged) > 0 {
		if err := os.Link(j.path, j.path+".damaged"); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("keep the damaged journal of bans: %w", err)
		}
	}
	if err := renameio.WriteFile(j.path, line, 0o600, renameio.WithTempDir(filepath.Dir(j.path))); err != nil {
		return fmt.Errorf("write the journal of bans: %w", err)
	}
	return syncDir(filepath.Dir(j.path))
}
