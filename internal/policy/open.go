package policy

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// errNoFile is why a FIFO, a device or a socket is not read: opening one may wait for
// ever, or do something, and what it holds is gone when it is read again.
var errNoFile = errors.New("is not a regular file\n  hint: name a file, or give - where standard input is taken")

// OpenFile opens a file that a policy is made of, or that a command line names: a
// regular one, or a folder, whose reading then fails as such.
func OpenFile(path string) (*os.File, error) {
	info, err := os.Stat(path)
	var failed *fs.PathError
	if errors.As(err, &failed) {
		failed.Op = "open" // which is what was wanted
	}
	if err != nil {
		return nil, err
	}
	if strange(info) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errNoFile}
	}
	// What takes its place meanwhile must not keep us waiting either.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil && strange(info) {
		err = &fs.PathError{Op: "open", Path: path, Err: errNoFile}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func strange(info fs.FileInfo) bool {
	return info.Mode()&(fs.ModeNamedPipe|fs.ModeDevice|fs.ModeSocket|fs.ModeIrregular) != 0
}
