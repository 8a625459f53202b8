// Package view opens files that somebody else names, as he sees them, or in one folder
// alone. The agent's processes read policies by it. What is opened is what was looked at,
// whatever takes its place meanwhile.
package view

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"sluice/internal/base/regular"
)

// ErrElsewhere is why a file is not opened that is another one for each who opens it, such
// as /proc/self/fd/3.
var ErrElsewhere = errors.New("another file for each who opens it")

// View is where names lead. It is safe for concurrent use.
type View struct {
	root *os.File
	at   string // absolute names of the view begin so
	base string // relative names begin behind it
	how  uint64 // RESOLVE_...
	but  string // a file that is not opened
	away error  // what is said of a name that leads out
	by   *Reader

	left atomic.Bool // such a name was asked for
}

// Of is what a process sees whose root is given, from its folder base. Names lead out of
// it nowhere.
func Of(root *os.File, base string) *View {
	return &View{root: root, at: "/", base: base, how: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS, away: ErrElsewhere}
}

// OutsideError says that a name leads out of the one folder that files may be named in.
type OutsideError struct{ Folder string }

func (e *OutsideError) Error() string {
	return "it is not in " + e.Folder + ", or leads out of it\n  hint: who is not root names files in there alone"
}

// Reader is who has files opened for him, and sees none that he could not open himself.
type Reader struct {
	UID    uint32   `json:"uid"`
	Groups []uint32 `json:"groups"`
}

// may says whether the mode of a file lets him do something: 4 to read it, 1 to go through a folder.
// A file with an ACL, which may keep from him what its mode does not, is its owner's alone.
func (r *Reader) may(name string, what fs.FileMode) bool {
	info, err := os.Stat(name)
	if err != nil {
		return false
	}
	of, known := info.Sys().(*syscall.Stat_t)
	switch {
	case !known:
		return false
	case of.Uid == r.UID:
		return info.Mode()&(what<<6) != 0
	case slices.Contains(r.Groups, of.Gid):
		what <<= 3
	}
	_, err = unix.Getxattr(name, "system.posix_acl_access", nil)
	none := errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP)
	return none && info.Mode()&what != 0
}

// In is what there is in one folder, for names from base, except for a file of a name in there, and for
// what the reader, if there is one, may not open.
func In(folder, base, but string, by *Reader) (*View, error) {
	root, err := os.OpenFile(folder, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &View{root: root, at: folder + "/", base: base, how: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS, away: &OutsideError{folder}, but: folder + "/" + but, by: by}, nil
}

// tries is how often a name is looked up while folders of it move.
const tries = 100

// look finds what a name leads to, without opening it.
func (v *View) look(name string) (*os.File, error) {
	full := name
	if !filepath.IsAbs(name) {
		full = v.base + "/" + name // ".." behind a link is for the kernel
	}
	rest, in := strings.CutPrefix(full, v.at)
	if full+"/" == v.at {
		rest, in = ".", true
	}
	if !in {
		return nil, v.failed(name, v.away)
	}
	rest = strings.TrimLeft(rest, "/")
	if rest == "" {
		rest = "."
	}
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: v.how}
	var fd int
	err := error(unix.EAGAIN)
	for i := 0; i < tries && errors.Is(err, unix.EAGAIN); i++ {
		fd, err = unix.Openat2(int(v.root.Fd()), rest, how)
	}
	switch {
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOSYS):
		err = v.away
	case err == nil:
		var of unix.Statfs_t
		if err = unix.Fstatfs(fd, &of); err == nil && of.Type == unix.PROC_SUPER_MAGIC {
			err = v.away
		}
		at := os.NewFile(uintptr(fd), name)
		if err == nil && !v.kept(at) && v.lets(at) {
			return at, nil
		}
		_ = at.Close()
		err = cmp.Or(err, fs.ErrPermission)
	}
	return nil, v.failed(name, err)
}

// kept says that a file is the one that nobody opens.
func (v *View) kept(at *os.File) bool {
	is, err := at.Stat()
	but, none := os.Stat(v.but)
	return err == nil && none == nil && os.SameFile(is, but)
}

// lets says that the reader could open a file, by its mode and those of its folders.
func (v *View) lets(at *os.File) bool {
	if v.by == nil {
		return true
	}
	name, unread := os.Readlink(link(at))
	top, unknown := os.Readlink(link(v.root))
	if unread != nil || unknown != nil || !v.by.may(link(at), 4) {
		return false
	}
	for name != top && name != "/" {
		if name = filepath.Dir(name); !v.by.may(name, 1) {
			return false
		}
	}
	return true
}

func (v *View) failed(name string, err error) error {
	if errors.Is(err, v.away) {
		v.left.Store(true)
	}
	return &fs.PathError{Op: "open", Path: name, Err: err}
}

// Left says that a name was asked for that leads out of the view.
func (v *View) Left() bool { return v.left.Load() }

// Open is regular.Open.
func (v *View) Open(name string) (*os.File, error) {
	at, err := v.look(name)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	info, err := at.Stat()
	if err == nil && regular.Strange(info) {
		err = &fs.PathError{Op: "open", Path: name, Err: regular.Err}
	}
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(link(at), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// link is a name of what is looked at, by which it is opened and no other.
func link(at *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(at.Fd())) }

// Real is a name of a file by which it is told from others.
func (v *View) Real(name string) (string, error) {
	at, err := v.look(name)
	if err != nil {
		return "", err
	}
	defer at.Close()
	return os.Readlink(link(at))
}

// Glob is filepath.Glob, for a pattern that has something to match. That something leads
// out, or may not be read, is an error.
func (v *View) Glob(pattern string) ([]string, error) {
	folders := &folders{in: v}
	if rest, absolute := strings.CutPrefix(pattern, "/"); absolute {
		folders.before, pattern = "/", rest
	}
	names, err := fs.Glob(folders, pattern)
	if err == nil {
		err = folders.away
	}
	for i := range names {
		names[i] = folders.before + names[i]
	}
	return names, err
}

// folders are those that a pattern is looked for in.
type folders struct {
	in     *View
	before string // of all names
	away   error
}

func (f *folders) Open(name string) (fs.File, error) {
	at, err := f.in.look(f.before + name)
	if err != nil {
		for _, why := range []error{f.in.away, fs.ErrPermission} {
			if errors.Is(err, why) {
				f.away = fmt.Errorf("%s: %w", f.before+name, why)
			}
		}
		return nil, err
	}
	defer at.Close()
	if info, err := at.Stat(); err != nil || !info.IsDir() {
		return nil, errors.Join(err, fs.ErrInvalid)
	}
	return os.Open(link(at))
}

// Same says whether a name leads to the same file or folder here as in the view, or in
// both to none.
func (v *View) Same(name string) (bool, error) {
	there, err := v.look(name)
	here, hereErr := os.Stat(name)
	switch none := errors.Is(err, fs.ErrNotExist); {
	case none || errors.Is(hereErr, fs.ErrNotExist):
		return none && errors.Is(hereErr, fs.ErrNotExist), nil
	case err != nil:
		return false, err
	}
	defer there.Close()
	if hereErr != nil {
		return false, hereErr
	}
	info, err := there.Stat()
	return err == nil && os.SameFile(info, here), err
}

// SameToWrite is Same, and says whether what is mounted there may be written as here.
func (v *View) SameToWrite(name string) (bool, error) {
	if same, err := v.Same(name); err != nil || !same {
		return false, err
	}
	there, err := v.look(name)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer there.Close()
	var theirs, ours unix.Statfs_t
	if err := errors.Join(unix.Fstatfs(int(there.Fd()), &theirs), unix.Statfs(name, &ours)); err != nil {
		return false, err
	}
	return (theirs.Flags^ours.Flags)&unix.ST_RDONLY == 0, nil
}

// Close gives up the hold on the folder.
func (v *View) Close() error { return v.root.Close() }
