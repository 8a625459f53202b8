package kernels

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"
)

// archive collects what the guest has as its files, by path without the first
// slash. /bin, /sbin, /lib and /lib64 lead to those of /usr, as on every system
// that the kernels are from.
type archive struct {
	records map[string]func() (cpio.Record, error)
}

func newArchive() *archive {
	a := &archive{map[string]func() (cpio.Record, error){}}
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		a.directory("usr/" + d)
		a.records[d] = func() (cpio.Record, error) { return cpio.Symlink(d, "usr/"+d), nil }
	}
	for _, d := range []string{"proc", "sys", "dev", "tmp", "run", "root", "var/lib", "var/log", "src"} {
		a.directory(d)
	}
	return a
}

// inGuest is the name under which the archive has a path.
func inGuest(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	first, _, _ := strings.Cut(name, "/")
	switch first {
	case "bin", "sbin", "lib", "lib64":
		return "usr/" + name
	}
	return name
}

func (a *archive) directory(name string) {
	name = inGuest(name)
	for ; name != "." && name != ""; name = path.Dir(name) {
		if _, there := a.records[name]; there {
			return
		}
		mode := uint64(0o755)
		if name == "tmp" {
			mode = 0o1777
		}
		d := cpio.Directory(name, mode)
		a.records[name] = func() (cpio.Record, error) { return d, nil }
	}
}

func (a *archive) put(name string, record cpio.Record) {
	name = inGuest(name)
	a.directory(path.Dir(name))
	record.Name = name
	a.records[name] = func() (cpio.Record, error) { return record, nil }
}

// text is a file with some contents; it replaces what was there.
func (a *archive) text(name, contents string, mode uint64) {
	a.put(name, cpio.StaticFile("", contents, mode))
}

func (a *archive) symlink(name, target string) { a.put(name, cpio.Symlink("", target)) }

// copy takes a file or a whole directory of this machine, under a name. Symbolic
// links stay what they are.
func (a *archive) copy(name, from string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		a.file(name, from, info)
		return nil
	}
	return filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		to := path.Join(name, filepath.ToSlash(inside))
		switch kind := entry.Type(); {
		case entry.IsDir():
			a.directory(to)
		case kind&fs.ModeSymlink != 0:
			target, err := os.Readlink(file)
			if err != nil {
				return err
			}
			a.symlink(to, target)
		case kind.IsRegular():
			info, err := entry.Info()
			if err != nil {
				return err
			}
			a.file(to, file, info)
		}
		return nil
	})
}

// file is read when the archive is written.
func (a *archive) file(name, from string, info fs.FileInfo) {
	name = inGuest(name)
	a.directory(path.Dir(name))
	mode := uint64(cpio.S_IFREG) | uint64(info.Mode().Perm())
	a.records[name] = func() (cpio.Record, error) {
		contents, err := os.ReadFile(from)
		return cpio.StaticRecord(contents, cpio.Info{Name: name, Mode: mode}), err
	}
}

// program takes a program, under its own path, with all that its loader maps. It
// is in the guest's PATH whatever that path is.
func (a *archive) program(name string) error {
	file := find(name)
	if file == "" || !exists(file) {
		return need(name)
	}
	if err := a.linked(file); err != nil {
		return err
	}
	a.alias(filepath.Base(file), file)
	return a.libraries(file)
}

// libraries takes all that a program's loader maps.
func (a *archive) libraries(program string) error {
	all, err := libraries(program)
	if err != nil {
		return err
	}
	for _, l := range all {
		if err := a.linked(l); err != nil {
			return err
		}
	}
	return nil
}

// alias is a name in /usr/bin for a program, unless another one has it.
func (a *archive) alias(name, file string) {
	if _, there := a.records["usr/bin/"+name]; !there {
		a.symlink("usr/bin/"+name, "/"+inGuest(file))
	}
}

// linked takes a file under its own path; where that is a symbolic link, the link
// and what it leads to.
func (a *archive) linked(file string) error {
	for range 40 { // as many as the kernel follows
		info, err := os.Lstat(file)
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			a.file(file, file, info)
			return nil
		}
		target, err := os.Readlink(file)
		if err != nil {
			return err
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(file))
		if err != nil {
			return err
		}
		a.symlink(file, target)
		if !filepath.IsAbs(target) {
			target = filepath.Join(dir, target)
		}
		// a directory on the way may be a link as well: the guest has the real one
		if real, err := filepath.EvalSymlinks(filepath.Dir(target)); err == nil {
			if next := filepath.Join(real, filepath.Base(target)); next != target {
				a.symlink(file, "/"+inGuest(next))
				target = next
			}
		}
		file = target
	}
	return fmt.Errorf("%s: too many symbolic links", file)
}

// write writes the archive, directories before what is in them.
func (a *archive) write(to io.Writer) error {
	w := cpio.Newc.Writer(to)
	for _, name := range slices.Sorted(maps.Keys(a.records)) {
		record, err := a.records[name]()
		if err != nil {
			return err
		}
		// what is older than the machine's clock confuses make-like programs alone;
		// a fixed time makes equal guests of equal files
		record.MTime = 1
		if record.NLink == 0 {
			record.NLink = 1
		}
		if err := w.WriteRecord(record); err != nil {
			return errors.Join(err, fmt.Errorf("pack %s", name))
		}
	}
	return cpio.WriteTrailer(w)
}
