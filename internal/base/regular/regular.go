// Package regular opens the files that a user names and those that Sluice keeps, and
// never waits for one. Whatever reads such files calls it: policies, lists, bans, the state. A package of its own, because the language, the fetching of
// lists and the state open files and must not know each other.
package regular

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Err is why a FIFO, a device or a socket is not read: opening one may wait for ever,
// or do something, and what it holds is gone when it is read again.
var Err = errors.New("not a regular file")

// ErrLarge is why a file is not read that is larger than what was to be read.
var ErrLarge = errors.New("larger than any file of its kind")

// Unfit says that a file is there and is none that Read reads.
func Unfit(err error) bool { return errors.Is(err, Err) || errors.Is(err, ErrLarge) }

// Read reads a regular file of at most so many bytes. Errors are those of
// [os.ReadFile], or a [fs.PathError] of [Err] or [ErrLarge].
func Read(path string, most int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(f, path, most)
}

// ReadAll is Read of a file that Open has opened.
func ReadAll(f *os.File, path string, most int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	large := &fs.PathError{Op: "read", Path: path, Err: ErrLarge}
	if info.Mode().IsRegular() && info.Size() > most {
		return nil, large
	}
	text := bytes.NewBuffer(make([]byte, 0, min(info.Size(), most)+bytes.MinRead))
	if _, err := text.ReadFrom(io.LimitReader(f, most+1)); err != nil {
		return nil, err
	}
	if int64(text.Len()) > most {
		return nil, large
	}
	return text.Bytes(), nil
}

// Open opens a regular file, or a folder, whose reading then fails as such. Errors are
// those of [os.Open], or a [fs.PathError] of [Err].
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY, 0) }

// OpenFile is Open with the flags of [os.OpenFile], except for O_TRUNC: a file is cut
// once it is known what it is. What is written is no symbolic link, by which another
// file would be.
func OpenFile(path string, flag int, perm fs.FileMode) (*os.File, error) {
	look := os.Stat
	if flag&(os.O_WRONLY|os.O_RDWR) != 0 {
		look, flag = os.Lstat, flag|unix.O_NOFOLLOW
	}
	info, err := look(path)
	var failed *fs.PathError
	if errors.As(err, &failed) {
		failed.Op = "open" // which is what was wanted
	}
	if err != nil && (flag&os.O_CREATE == 0 || !errors.Is(err, fs.ErrNotExist)) {
		return nil, err
	}
	if err == nil && Strange(info) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: Err}
	}
	// What takes its place meanwhile must not keep us waiting either.
	f, err := os.OpenFile(path, flag|unix.O_NONBLOCK|unix.O_NOCTTY, perm)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil && Strange(info) {
		err = &fs.PathError{Op: "open", Path: path, Err: Err}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// SyncDir waits until the disk has what is in a folder: which files, and not what
// they hold.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Strange says that a file is none that Open opens.
func Strange(info fs.FileInfo) bool {
	return info.Mode()&(fs.ModeSymlink|fs.ModeNamedPipe|fs.ModeDevice|fs.ModeSocket|fs.ModeIrregular) != 0
}
