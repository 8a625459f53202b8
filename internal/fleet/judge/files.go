package judge

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Files are those of a fleet's repository, by their paths in it, and no others.
type Files map[string]File

// File is one of them.
type File struct {
	Sum  string // tells its content from others
	Read func() ([]byte, error)
}

// Text is a file of this text.
func Text(text []byte) File {
	return File{fmt.Sprintf("%x", sha256.Sum256(text)), func() ([]byte, error) { return text, nil }}
}

// Open gives a file of memory.
func (f Files) Open(name string) (*os.File, error) {
	is, has := f[filepath.Clean(name)]
	if !has {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	text, err := is.Read()
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("policy", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	file := os.NewFile(uintptr(fd), name)
	if _, err = file.Write(text); err == nil {
		_, err = file.Seek(0, 0)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// Real is a name by which a file is told from others.
func (f Files) Real(name string) (string, error) {
	if name = filepath.Clean(name); f[name].Read == nil {
		return "", &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return name, nil
}

// Glob is filepath.Glob.
func (f Files) Glob(pattern string) (names []string, err error) {
	for name := range f {
		matches, err := path.Match(filepath.Clean(pattern), name)
		if err != nil {
			return nil, err
		}
		if matches {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}
