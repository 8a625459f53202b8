// Package ring keeps records on disk in files of a bounded size together, the oldest of which
// go for new ones. One process writes, with Open; any may read meanwhile, with Read. Callers:
// the engine, for what the firewall logs, and the agent, which opens it.
//
// A folder has segments, named by the number of their first record, in which a record is a
// line of text: the CRC-32C of all behind it in hexadecimal, its number, when it was appended
// by the wall clock in microseconds, the boot and CLOCK_BOOTTIME in nanoseconds, and the data.
// A line that is cut or damaged is skipped, and costs no other. Numbers rise by one for
// each record, across restarts; nothing is synced, so that a crash of the machine, and not
// one of the process, loses the last seconds, whose numbers are then given again.
package ring

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/base/regular"
)

const (
	segments = 8        // so much of the ring goes at a time
	suffix   = ".log"   // of their names
	digits   = 20       // of a number in them
	most     = 16 << 10 // bytes of a line
	buffered = 64 << 10 // bytes that wait for a Flush, a line more at most
)

// Least is the smallest size of a ring, in bytes: a segment has room for one Flush.
const Least = 1 << 20

var crc = crc32.MakeTable(crc32.Castagnoli)

// ErrLong says that a record is too long to be kept.
var ErrLong = fmt.Errorf("a record has more than %d bytes", most)

// ErrTaken says that another writes the ring.
var ErrTaken = errors.New("another process writes there")

// Ring is one that is written. Its methods are for one goroutine, except for Grown.
type Ring struct {
	// Note is told what others removed under it, where a Flush goes on again; nil: nobody.
	Note func(error)

	dir     string
	lock    *os.File // the folder
	size    int64
	file    *os.File // nil: the next record begins a segment
	length  int64    // of the file, up to its last whole line
	next    uint64
	waiting []byte // lines that are not written yet
	count   int    // of them

	mutex sync.Mutex
	grown chan struct{}
}

// Open opens the ring in a folder, which it makes, for its one writer. A segment that was cut
// is written on behind its last whole line. What is beyond the size is deleted.
func Open(dir string, size int64) (*Ring, error) {
	lock, err := folder(dir)
	if err != nil {
		return nil, err
	}
	r := &Ring{dir: dir, lock: lock, size: max(size, Least), next: 1, grown: make(chan struct{})}
	if err := r.begin(); err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

func folder(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return os.Open(dir)
}

func (r *Ring) begin() error {
	if err := unix.Flock(int(r.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return ErrTaken
	} else if err != nil {
		return err
	}
	all, err := list(r.dir)
	if err != nil {
		return err
	}
	if len(all) > 0 {
		if err := r.resume(all[len(all)-1]); err != nil {
			return err
		}
	}
	return r.trim()
}

// Written says whether somebody writes the ring in a folder at this moment.
func Written(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// resume goes on behind the last segment.
func (r *Ring) resume(first uint64) error {
	r.next = first
	f, err := regular.OpenFile(name(r.dir, first), os.O_RDWR|os.O_APPEND, 0)
	if regular.Unfit(err) || errors.Is(err, os.ErrNotExist) {
		r.next++ // what is there under its name stays
		return nil
	}
	if err != nil {
		return err
	}
	in := lines{file: f}
	for {
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			_ = f.Close()
			return err
		}
		if rec, ok := parse(line); ok && rec.ID >= r.next {
			r.next = rec.ID
		}
		r.next++ // a damaged line had a number as well
	}
	if err := f.Truncate(in.at); err != nil {
		_ = f.Close()
		return err
	}
	r.file, r.length = f, in.at
	return nil
}

// segment is how large one gets.
func (r *Ring) segment() int64 { return r.size / segments }

// trim deletes the oldest segments until there is room for one that is full.
func (r *Ring) trim() error {
	all, err := list(r.dir)
	if err != nil {
		return err
	}
	total := r.segment()
	for i, first := range slices.Backward(all) {
		of, err := os.Lstat(name(r.dir, first))
		if err != nil || !of.Mode().IsRegular() || i == len(all)-1 && r.file != nil {
			continue
		}
		if total += of.Size(); total > r.size {
			if err := os.Remove(name(r.dir, first)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Append adds a record of data without line feeds, which is on the way to the disk with the
// next Flush; Full says that this is due.
func (r *Ring) Append(data []byte) (id uint64, err error) {
	now := clock()
	begin := len(r.waiting)
	r.waiting = fmt.Appendf(r.waiting, "00000000 %d %d %s %d ", r.next, now.wall.UnixMicro(), now.boot, now.up)
	r.waiting = append(append(r.waiting, data...), '\n')
	line := r.waiting[begin:]
	if len(line) > most {
		r.waiting = r.waiting[:begin]
		return 0, ErrLong
	}
	copy(line, fmt.Sprintf("%08x", crc32.Checksum(line[9:len(line)-1], crc)))
	r.count++
	r.next++
	return r.next - 1, nil
}

// Full says that no more should be appended before the next Flush.
func (r *Ring) Full() bool { return len(r.waiting) >= buffered }

// Flush writes what was appended, and wakes who waits for it. With an error it is lost, and
// its numbers are given again.
func (r *Ring) Flush() error {
	if r.count == 0 {
		return nil
	}
	err := r.write()
	if err != nil {
		if r.file != nil && r.file.Truncate(r.length) != nil {
			r.close() // and some of it may be there
		} else {
			r.next -= uint64(r.count) //nolint:gosec // a count
		}
	}
	r.waiting, r.count = r.waiting[:0], 0
	if err != nil {
		return err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	close(r.grown)
	r.grown = make(chan struct{})
	return nil
}

// stay goes on in another folder, or with a new segment, where somebody removed or replaced
// that which is written.
func (r *Ring) stay() error {
	here, err := r.lock.Stat()
	if err != nil {
		return err
	}
	if there, err := os.Stat(r.dir); err != nil || !os.SameFile(here, there) {
		if err := r.anew(); err != nil {
			return err
		}
		r.note(r.dir)
		return nil
	}
	var of unix.Stat_t
	if r.file != nil && unix.Fstat(int(r.file.Fd()), &of) == nil && of.Nlink == 0 {
		r.note(r.file.Name())
		r.close()
	}
	return nil
}

func (r *Ring) note(what string) {
	if r.Note != nil {
		r.Note(fmt.Errorf("%s was removed, with what was kept in it, and is started again", what))
	}
}

// anew opens the folder that is there now, or makes one.
func (r *Ring) anew() error {
	lock, err := folder(r.dir)
	if err != nil {
		return err
	}
	if r.file != nil {
		r.close()
	}
	before, next := r.lock, r.next
	first := next - uint64(r.count) //nolint:gosec // a count
	r.lock, r.next = lock, 1
	if err := r.begin(); err != nil {
		if r.file != nil {
			r.close()
		}
		_ = lock.Close()
		r.lock, r.next = before, next
		return err
	}
	_ = before.Close()
	if r.next <= first {
		r.next = next
		return nil
	}
	// What was put there has the numbers of what waits.
	waiting := slices.Clone(r.waiting)
	r.waiting, r.count = r.waiting[:0], 0
	for line := range bytes.Lines(waiting) {
		if rec, ok := parse(line[:len(line)-1]); ok {
			if _, err := r.Append(rec.Data); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Ring) write() error {
	if err := r.stay(); err != nil {
		return err
	}
	if r.file != nil && r.length > 0 && r.length+int64(len(r.waiting)) > r.segment() {
		r.close()
	}
	if r.file == nil {
		if err := r.trim(); err != nil {
			return err
		}
		first := r.next - uint64(r.count) //nolint:gosec // a count
		f, err := regular.OpenFile(name(r.dir, first), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		r.file, r.length = f, 0
	}
	n, err := r.file.Write(r.waiting)
	if err == nil {
		r.length += int64(n)
	}
	return err
}

func (r *Ring) close() {
	_ = r.file.Close()
	r.file, r.length = nil, 0
}

// Grown is closed when more can be read than before the call.
func (r *Ring) Grown() <-chan struct{} {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.grown
}

// Close writes what was appended, and ends the writing.
func (r *Ring) Close() error {
	err := r.Flush()
	if r.file != nil {
		r.close()
	}
	_ = r.lock.Close()
	return err
}

func name(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%0*d%s", digits, first, suffix))
}

// list are the first numbers of the segments, rising.
func list(dir string) ([]uint64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, e := range entries {
		text, is := strings.CutSuffix(e.Name(), suffix)
		first, err := strconv.ParseUint(text, 10, 63)
		if is && err == nil && len(text) == digits {
			out = append(out, first)
		}
	}
	return out, nil // ReadDir sorts them
}

// moment is now.
type moment struct {
	wall time.Time
	boot string
	up   time.Duration // by CLOCK_BOOTTIME
}

// clock is the clocks of the kernel; tests set another.
var clock = func() moment {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // it is always there
	return moment{time.Now(), boot(), time.Duration(ts.Nano())}
}

const bootChars = 8 // enough to tell the boots of one machine apart

var boot = sync.OnceValue(func() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(text) < bootChars {
		return "-"
	}
	return string(text[:bootChars])
})
