package ring

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func opened(t testing.TB, dir string, size int64) *Ring {
	t.Helper()
	r, err := Open(dir, size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func add(t testing.TB, r *Ring, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if _, err := r.Append([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Flush(); err != nil {
		t.Fatal(err)
	}
}

// written adds to a ring that is closed again.
func written(t testing.TB, dir string, texts ...string) {
	t.Helper()
	r := opened(t, dir, Least)
	add(t, r, texts...)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// rest is what is to be read, as "NUMBER DATA".
func rest(t testing.TB, r *Reader) (out []string) {
	t.Helper()
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprint(rec.ID, " ", string(rec.Data)))
	}
}

func reading(t testing.TB, dir string, from uint64) *Reader {
	t.Helper()
	r, err := Read(dir, from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func equal(t testing.TB, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNumbersRiseOverRestarts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	if _, err := Read(dir, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	if Written(dir) {
		t.Error("nobody writes there")
	}
	r := opened(t, dir, Least)
	add(t, r, "a", "b")
	if _, err := Open(dir, Least); !errors.Is(err, ErrTaken) || !Written(dir) {
		t.Errorf("a second writer: %v", err)
	}
	if err := r.Close(); err != nil || Written(dir) {
		t.Error(err)
	}
	r = opened(t, dir, Least)
	last, err := Last(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(last.Close)
	add(t, r, "c d")
	equal(t, rest(t, last), "3 c d")
	equal(t, rest(t, reading(t, dir, 0)), "1 a", "2 b", "3 c d")
	equal(t, rest(t, reading(t, dir, 3)), "3 c d")
	equal(t, rest(t, reading(t, dir, 4)))
	if _, err := r.Append(make([]byte, most)); !errors.Is(err, ErrLong) {
		t.Error(err)
	}
	add(t, r, "e")
	equal(t, rest(t, reading(t, dir, 4)), "4 e")
}

// A reader that is at the end goes on as the ring grows, into new segments too, and misses
// nothing.
func TestReaderFollows(t *testing.T) {
	dir := t.TempDir()
	r := opened(t, dir, Least)
	in := reading(t, dir, 0)
	seen := uint64(0)
	data := bytes.Repeat([]byte{'x'}, 1000)
	for i := range 400 {
		grown := r.Grown()
		if _, err := r.Append(data); err != nil {
			t.Fatal(err)
		}
		if i%7 != 0 {
			continue
		}
		if err := r.Flush(); err != nil {
			t.Fatal(err)
		}
		<-grown
		for {
			rec, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || rec.ID != seen+1 || !bytes.Equal(rec.Data, data) {
				t.Fatalf("%d behind %d: %v", rec.ID, seen, err)
			}
			seen = rec.ID
		}
		if seen != uint64(i+1) {
			t.Fatalf("read up to %d of %d", seen, i+1)
		}
	}
	if all, _ := list(dir); len(all) < 3 {
		t.Errorf("%d segments", len(all))
	}
}

// The ring stays below its size, and what it has is the newest; one that is made smaller is so
// at once.
func TestSize(t *testing.T) {
	dir := t.TempDir()
	r := opened(t, dir, 4*Least)
	data := bytes.Repeat([]byte{'x'}, 1000)
	for range 12_000 {
		if _, err := r.Append(data); err != nil {
			t.Fatal(err)
		}
		if r.Full() {
			add(t, r)
		}
	}
	bounded := func(size int64) {
		t.Helper()
		var total int64
		all, err := list(dir)
		for _, first := range all {
			of, err := os.Stat(name(dir, first))
			if err != nil {
				t.Fatal(err)
			}
			total += of.Size()
		}
		if err != nil || total > size || total < size/2 {
			t.Errorf("%d bytes in %d segments, %v", total, len(all), err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	bounded(4 * Least)
	got := rest(t, reading(t, dir, 0))
	if last := fmt.Sprint(12_000, " ", string(data)); got[len(got)-1] != last {
		t.Errorf("%.20s", got[len(got)-1])
	}
	opened(t, dir, 2*Least)
	bounded(2 * Least)
}

// What is cut at any byte opens, loses the record that was cut, and goes on.
func TestCut(t *testing.T) {
	whole := t.TempDir()
	written(t, whole, "a", "b", "c")
	text, err := os.ReadFile(name(whole, 1))
	if err != nil {
		t.Fatal(err)
	}
	for n := range text {
		dir := t.TempDir()
		if err := os.WriteFile(name(dir, 1), text[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		left := bytes.Count(text[:n], []byte{'\n'})
		written(t, dir, "new")
		want := append([]string{"1 a", "2 b", "3 c"}[:left:left], fmt.Sprint(left+1, " new"))
		equal(t, rest(t, reading(t, dir, 0)), want...)
	}
	for n := range text { // a byte that is another one costs its record alone
		dir := t.TempDir()
		damaged := bytes.Clone(text)
		damaged[n] ^= 1
		if err := os.WriteFile(name(dir, 1), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		written(t, dir, "new")
		got := rest(t, reading(t, dir, 0))
		if len(got) < 2 || got[len(got)-1][1:] != " new" {
			t.Errorf("byte %d: %q", n, got)
		}
	}
}

// FuzzOpen opens whatever is in the folder, reads it, and goes on behind it.
func FuzzOpen(f *testing.F) {
	dir := f.TempDir()
	written(f, dir, "a", "b")
	text, err := os.ReadFile(name(dir, 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, uint64(1), text[:20])
	f.Add([]byte{}, uint64(7), bytes.Repeat([]byte{0}, 100))
	f.Add(bytes.Repeat([]byte{'x'}, 3*most), uint64(1<<63-3), text)
	f.Fuzz(func(t *testing.T, one []byte, first uint64, two []byte) {
		dir := t.TempDir()
		first %= 1 << 62
		second := first + 1000
		for n, text := range map[string][]byte{name(dir, first): one, name(dir, second): two} {
			if err := os.WriteFile(n, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		rest(t, reading(t, dir, 0))
		r := opened(t, dir, Least)
		id, err := r.Append([]byte("new"))
		if failed := r.Flush(); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		got := rest(t, reading(t, dir, 0))
		if id < second || len(got) == 0 || got[len(got)-1] != fmt.Sprint(id, " new") {
			t.Errorf("%d: %q", id, got)
		}
	})
}

// When somebody sets the clock, what was appended in this boot stays as old as it is.
func TestClockIsSet(t *testing.T) {
	is := clock
	t.Cleanup(func() { clock = is })
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	now := moment{at, "boot1", time.Hour}
	clock = func() moment { return now }
	dir := t.TempDir()
	add(t, opened(t, dir, Least), "a")
	now = moment{at.Add(24 * time.Hour), "boot1", time.Hour + time.Minute}
	rec, err := reading(t, dir, 0).Next()
	if err != nil || !rec.Stamped.Equal(at) || !rec.Time.Equal(now.wall.Add(-time.Minute)) {
		t.Errorf("%+v %v", rec, err)
	}
	now.boot = "boot2"
	if rec, err = reading(t, dir, 0).Next(); err != nil || !rec.Time.Equal(at) {
		t.Errorf("another boot: %+v %v", rec, err)
	}
}

// A disk that is full loses what comes meanwhile, and says how much.
func TestDiskFails(t *testing.T) {
	dir := t.TempDir()
	r := opened(t, dir, Least)
	add(t, r, "a")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this machine lacks /dev/full")
	}
	real := r.file
	r.file = full
	for range 2 {
		if _, err := r.Append([]byte("lost")); err != nil {
			t.Fatal(err)
		}
	}
	if r.Flush() == nil {
		t.Error("a full disk takes it")
	}
	_ = real.Close()
	add(t, r, "b")
	got := rest(t, reading(t, dir, 0))
	if len(got) != 2 || got[0] != "1 a" || got[1] != "4 b" { // /dev/full cannot be cut, so the numbers count as used
		t.Errorf("%q", got)
	}
}

// The last records are those that fit into so many bytes, whichever segments they are in.
func TestTail(t *testing.T) {
	dir := t.TempDir()
	r := opened(t, dir, Least)
	const length = 1000
	last := uint64(0)
	for segmentsOf(t, dir) < 3 {
		var err error
		if last, err = r.Append(bytes.Repeat([]byte("x"), length)); err != nil {
			t.Fatal(err)
		}
		if err := r.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []int64{0, 10, 5 * length, 2 * Least} {
		in, err := Tail(dir, size)
		if err != nil {
			t.Fatal(err)
		}
		n, read := 0, uint64(0)
		for {
			rec, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || read != 0 && rec.ID != read+1 {
				t.Fatalf("of %d bytes: record %d behind %d, %v", size, rec.ID, read, err)
			}
			n, read = n+1, rec.ID
		}
		in.Close()
		switch {
		case size == 2*Least && n != int(last), size == 5*length && n != 4, n > 0 && read != last:
			t.Errorf("of the last %d bytes there are %d records, the last of which is %d of %d", size, n, read, last)
		}
	}
	if _, err := Tail(filepath.Join(dir, "none"), 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no folder: %v", err)
	}
}

func segmentsOf(t *testing.T, dir string) int {
	t.Helper()
	all, err := list(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// Where others remove what is written, or put something else in its place, it is started again,
// which is said once, and nothing that comes then is lost.
func TestRemovedUnderneath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "agent", "log")
	r := opened(t, dir, Least)
	var said []string
	r.Note = func(err error) { said = append(said, err.Error()) }
	told := func(what string) {
		t.Helper()
		if len(said) != 1 || !strings.Contains(said[0], what+" was removed") {
			t.Errorf("%q is said, want of %s once", said, what)
		}
		said = nil
	}
	add(t, r, "a")
	last, err := Last(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(last.Close)
	if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
		t.Fatal(err)
	}
	add(t, r, "b")
	add(t, r, "c")
	told(dir)
	equal(t, rest(t, reading(t, dir, 0)), "2 b", "3 c")
	equal(t, rest(t, last), "2 b", "3 c")
	if !Written(dir) {
		t.Error("nobody writes there")
	}

	if err := os.Remove(name(dir, 2)); err != nil {
		t.Fatal(err)
	}
	add(t, r, "d")
	told(name(dir, 2))
	equal(t, rest(t, reading(t, dir, 0)), "4 d")
	equal(t, rest(t, last), "4 d")

	// A copy of before is put in its place.
	other := filepath.Join(t.TempDir(), "log")
	written(t, other, "x")
	replace := func(with string) {
		t.Helper()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(with, dir); err != nil {
			t.Fatal(err)
		}
	}
	replace(other)
	add(t, r, "e")
	told(dir)
	equal(t, rest(t, reading(t, dir, 0)), "1 x", "5 e")

	// One that has the numbers already.
	written(t, other, "1", "2", "3", "4", "5", "6", "7")
	replace(other)
	add(t, r, "f", "g")
	told(dir)
	equal(t, rest(t, reading(t, dir, 7)), "7 7", "8 f", "9 g")

	// Nothing is written where another writes, or where none can be made.
	taken := opened(t, other, Least)
	replace(other)
	if _, err := r.Append([]byte("h")); err != nil {
		t.Fatal(err)
	}
	if err := r.Flush(); !errors.Is(err, ErrTaken) {
		t.Error(err)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Append([]byte("i")); err != nil {
		t.Fatal(err)
	}
	if err := r.Flush(); err == nil || len(said) > 0 {
		t.Errorf("%v, and %q is said", err, said)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	add(t, r, "j")
	told(dir)
	equal(t, rest(t, reading(t, dir, 0)), "10 j")
}
