package ring

import (
	"bufio"
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"time"

	"sluice/internal/base/regular"
)

// Record is one that is kept.
type Record struct {
	ID uint64
	// Time is when it was appended, by the wall clock as it is now set where that was in this
	// boot; Stamped is what the wall clock said then.
	Time, Stamped time.Time
	Data          []byte // until the next call

	boot string
	up   time.Duration
}

// Reader reads the records of a folder in the order of their numbers.
type Reader struct {
	dir   string
	after uint64 // the number of the last record
	first uint64 // of the segment
	in    lines
	last  bool   // a newer segment is there: this one grows no more
	now   moment // when it was opened, or last read to its end
}

// Read reads from the record of a number on, or from the oldest that is there. Where there is
// no folder the error is fs.ErrNotExist.
func Read(dir string, from uint64) (*Reader, error) {
	all, err := list(dir)
	if err != nil {
		return nil, err
	}
	r := &Reader{dir: dir, after: max(from, 1) - 1}
	for _, first := range all {
		if first <= from {
			r.first = first - min(first, 1) // open takes the next one
		}
	}
	return r, nil
}

// Last reads what comes behind the records that are there.
func Last(dir string) (*Reader, error) {
	all, err := list(dir)
	if err != nil {
		return nil, err
	}
	r := &Reader{dir: dir}
	if len(all) > 0 {
		r.first = all[len(all)-1] - min(all[len(all)-1], 1)
	}
	for {
		switch _, err := r.Next(); {
		case errors.Is(err, io.EOF):
			return r, nil
		case err != nil:
			r.Close()
			return nil, err
		}
	}
}

// Tail reads the records of the last so many bytes.
func Tail(dir string, size int64) (*Reader, error) {
	all, err := list(dir)
	if err != nil {
		return nil, err
	}
	r := &Reader{dir: dir}
	for i := len(all) - 1; i >= 0 && size > 0; i-- {
		r.Close()
		f, err := regular.Open(name(dir, all[i]))
		if errors.Is(err, os.ErrNotExist) || regular.Unfit(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		r.first, r.in = all[i], lines{file: f}
		end, err := f.Seek(0, io.SeekEnd)
		if err == nil {
			// A line that this cuts is skipped.
			r.in.at, err = f.Seek(max(end-size, 0), io.SeekStart)
		}
		if err != nil {
			r.Close()
			return nil, err
		}
		size -= end
	}
	return r, nil
}

// Next is the next record. io.EOF says that there is none yet; it may be called again.
func (r *Reader) Next() (Record, error) {
	for {
		if r.in.file == nil {
			if err := r.open(); err != nil {
				return Record{}, err
			}
		}
		line, err := r.in.next()
		if errors.Is(err, io.EOF) {
			if r.last {
				r.Close()
				continue
			}
			newer, err := r.newer()
			if err != nil {
				return Record{}, err
			}
			if r.now = clock(); newer == 0 {
				return Record{}, io.EOF
			}
			r.last = true // and once more: it may have grown before the newer one was made
			continue
		}
		if err != nil {
			return Record{}, err
		}
		if rec, ok := parse(line); ok && rec.ID > r.after {
			r.after = rec.ID
			if rec.boot == r.now.boot {
				rec.Time = r.now.wall.Add(rec.up - r.now.up)
			}
			return rec, nil
		}
	}
}

// newer is the first number of the next segment, 0 being none.
func (r *Reader) newer() (uint64, error) {
	all, err := list(r.dir)
	for _, first := range all {
		if first > r.first {
			return first, err
		}
	}
	return 0, err
}

// open opens the next segment.
func (r *Reader) open() error {
	for {
		first, err := r.newer()
		if err != nil {
			return err
		}
		if first == 0 {
			return io.EOF
		}
		f, err := regular.Open(name(r.dir, first))
		if err != nil && !errors.Is(err, os.ErrNotExist) && !regular.Unfit(err) {
			return err
		}
		r.first = first
		if err == nil {
			r.in, r.last, r.now = lines{file: f}, false, clock()
			return nil
		}
	}
}

// Close ends the reading.
func (r *Reader) Close() {
	if r.in.file != nil {
		_ = r.in.file.Close()
	}
	r.in = lines{}
}

// lines reads whole lines of a file that may grow.
type lines struct {
	file *os.File
	in   *bufio.Reader
	at   int64 // behind the last whole line
}

// next is a line without its end, until the next call; nil is one that is too long. io.EOF
// says that no whole one is there.
func (l *lines) next() ([]byte, error) {
	if l.in == nil {
		l.in = bufio.NewReaderSize(l.file, 2*most)
	}
	line, err := l.in.ReadSlice('\n')
	length := int64(len(line))
	for long := false; ; long = true {
		switch {
		case err == nil:
			l.at += length
			if long {
				return nil, nil
			}
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			// The rest may be another one the next time.
			if _, back := l.file.Seek(l.at, io.SeekStart); back != nil {
				return nil, back
			}
			l.in.Reset(l.file)
			return nil, err
		}
		var more []byte
		more, err = l.in.ReadSlice('\n')
		length += int64(len(more))
	}
}

// parse reads a line.
func parse(line []byte) (rec Record, ok bool) {
	sum, rest, _ := bytes.Cut(line, []byte(" "))
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil || len(sum) != 8 || crc32.Checksum(rest, crc) != uint32(want) {
		return rec, false
	}
	fields := bytes.SplitN(rest, []byte(" "), 5)
	if len(fields) != 5 {
		return rec, false
	}
	id, err := strconv.ParseUint(string(fields[0]), 10, 63)
	wall, err1 := strconv.ParseInt(string(fields[1]), 10, 64)
	up, err2 := strconv.ParseInt(string(fields[3]), 10, 64)
	if errors.Join(err, err1, err2) != nil {
		return rec, false
	}
	at := time.UnixMicro(wall)
	return Record{ID: id, Time: at, Stamped: at, Data: fields[4], boot: string(fields[2]), up: time.Duration(up)}, true
}
