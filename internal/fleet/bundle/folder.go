package bundle

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"sluice/internal/base/regular"
	"sluice/internal/fleet/trust"
)

// ErrOutside is why a file is not opened that a name or a link of a repository leads to: who
// proposes a change would be shown what the machine has that checks it.
var ErrOutside = errors.New("it leads out of the repository, and hosts get what is in it")

// Folder is the files of a repository, as [policy.Files], and no others.
type Folder struct {
	dir  string
	root *os.Root
}

// Open gives the files that root has, under the names that they have in the folder dir; nil
// is that folder itself.
func Open(dir string, root *os.Root) (*Folder, error) {
	if root == nil {
		var err error
		if root, err = os.OpenRoot(dir); err != nil {
			return nil, err
		}
	}
	return &Folder{dir, root}, nil
}

// inside is a name in the folder.
func (f *Folder) inside(name string) string {
	within, err := filepath.Rel(f.dir, name)
	if err != nil {
		return name
	}
	return within
}

// failed is an error of root, whose own for what leads out has no name.
func failed(err error, name string) error {
	if of := (*fs.PathError)(nil); errors.As(err, &of) {
		of.Path = name
		if of.Err.Error() == "path escapes from parent" {
			of.Err = ErrOutside
		}
	}
	return err
}

// Open opens a regular file.
func (f *Folder) Open(name string) (*os.File, error) {
	file, err := f.root.OpenFile(f.inside(name), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, failed(err, name)
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = file.Close()
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.Join(err, regular.Err)}
	}
	return file, nil
}

// Real is a name by which a file is told from others.
func (f *Folder) Real(name string) (string, error) {
	_, err := f.root.Stat(f.inside(name))
	return filepath.Clean(name), failed(err, name)
}

// Glob is filepath.Glob.
func (f *Folder) Glob(pattern string) ([]string, error) {
	found, err := fs.Glob(f.root.FS(), filepath.ToSlash(f.inside(pattern)))
	for i, name := range found {
		found[i] = filepath.Join(f.dir, filepath.FromSlash(name))
	}
	return found, err
}

// Read reads a file that may be signed.
func (f *Folder) Read(name string) ([]byte, error) {
	file, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return regular.ReadAll(file, name, trust.MaxList)
}
