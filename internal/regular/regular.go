// Package regular opens the files that a user names, and never waits for one. A
// package of its own, because the language and the fetching of lists open files and
// must not know each other.
package regular

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Err is why a FIFO, a device or a socket is not read: opening one may wait for ever,
// or do something, and what it holds is gone when it is read again.
var Err = errors.New("not a regular file")

// Open opens a regular file, or a folder, whose reading then fails as such. Errors are
// those of [os.Open], or a [fs.PathError] of [Err].
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	var failed *fs.PathError
	if errors.As(err, &failed) {
		failed.Op = "open" // which is what was wanted
	}
	if err != nil {
		return nil, err
	}
	if strange(info) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: Err}
	}
	// What takes its place meanwhile must not keep us waiting either.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil && strange(info) {
		err = &fs.PathError{Op: "open", Path: path, Err: Err}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func strange(info fs.FileInfo) bool {
	return info.Mode()&(fs.ModeNamedPipe|fs.ModeDevice|fs.ModeSocket|fs.ModeIrregular) != 0
}
