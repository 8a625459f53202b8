package view_test

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/base/regular"
	"sluice/internal/base/view"
	"sluice/internal/lab/testnet"
)

// folder has a policy and what might be taken for one.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"etc/a.yaml": "a", "etc/b.yaml": "b", "etc/sub/c.yaml": "c", "secret": "secret", "etcetera": "x",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"etc/in": "a.yaml", "etc/absolute": dir + "/etc/a.yaml", "etc/out": "../secret", "etc/far": "/etc/passwd", "etc/proc": "/proc/self/environ",
		"etc/fd": "/dev/fd/0", "etc/loop": "loop", "etc/up": "..", "etc/root": "/",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "etc/fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func text(v *view.View, name string) (string, error) {
	f, err := v.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	return string(got), err
}

// In one folder no name leads out of it, whatever it is made of.
func TestIn(t *testing.T) {
	dir := folder(t)
	v, err := view.In(dir+"/etc", dir+"/etc/sub", "agent.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for name, want := range map[string]string{
		dir + "/etc/a.yaml": "a", "c.yaml": "c", "../a.yaml": "a", dir + "/etc/in": "a", dir + "/etc/sub/../b.yaml": "b",
	} {
		if got, err := text(v, name); got != want || err != nil {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	if v.Left() {
		t.Error("nothing led out")
	}
	var outside *view.OutsideError
	for _, name := range []string{
		dir + "/secret", "../../secret", dir + "/etc/../secret", dir + "/etcetera", "/etc/passwd", "/proc/self/environ", "/",
		dir + "/etc/out", dir + "/etc/far", dir + "/etc/absolute", dir + "/etc/proc", dir + "/etc/fd", dir + "/etc/loop", dir + "/etc/up/secret", dir + "/etc/root/etc/passwd",
	} {
		if got, err := text(v, name); got != "" || !errors.As(err, &outside) {
			t.Errorf("%s: %q %v", name, got, err)
		}
		if got, err := v.Real(name); !errors.As(err, &outside) {
			t.Errorf("%s is %q: %v", name, got, err)
		}
	}
	if !v.Left() {
		t.Error("something led out")
	}
	for name, want := range map[string]error{
		dir + "/etc/none": fs.ErrNotExist, dir + "/etc/fifo": regular.Err, dir + "/etc/a.yaml/x": syscall.ENOTDIR, dir + "/etc/sub": syscall.EISDIR,
	} {
		if _, err := text(v, name); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, pattern := range []string{dir + "/*", "../../*", dir + "/etc/up/*", dir + "/etc/root/etc/*.conf", "/proc/*/environ"} {
		if names, err := v.Glob(pattern); len(names) != 0 || err == nil {
			t.Errorf("%s: %q %v", pattern, names, err)
		}
	}
}

// A pattern matches what filepath.Glob matches.
func TestGlob(t *testing.T) {
	dir := folder(t)
	t.Chdir(dir + "/etc")
	root, err := os.OpenFile("/", unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	whole := view.Of(root, dir+"/etc")
	defer whole.Close()
	one, err := view.In(dir+"/etc", dir+"/etc", "agent.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	for _, pattern := range []string{"*.yaml", dir + "/etc/*.yaml", "s*/*.yaml", "./[ab]*", "none*/x", "sub/*", "a.yaml/*", "nowhere/*"} {
		want, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []*view.View{whole, one} {
			if got, err := v.Glob(pattern); err != nil || len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %q %v, want %q", pattern, got, err, want)
			}
		}
	}
	for _, v := range []*view.View{whole, one} {
		if names, err := v.Glob("*/*.yaml"); err == nil {
			t.Errorf("a folder of them leads out unnoticed: %q", names)
		}
	}
	if _, err := one.Glob("[x"); err == nil {
		t.Errorf("bad pattern: %v", err)
	}
}

// What a process sees is read, and what is another file for each is not.
func TestOf(t *testing.T) {
	dir := folder(t)
	root, err := os.OpenFile(dir, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	v := view.Of(root, "/etc")
	defer v.Close()
	for name, want := range map[string]string{
		"/etc/a.yaml": "a", "a.yaml": "a", "/etc/out": "secret", "/etc/../../secret": "secret", "/etc/up/secret": "secret",
	} {
		if got, err := text(v, name); got != want || err != nil {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	if _, err := text(v, "/etc/far"); !errors.Is(err, fs.ErrNotExist) { // its own /etc/passwd
		t.Error(err)
	}
	if v.Left() {
		t.Error("nothing led out")
	}
	if same, err := v.Same("/etc"); same || err != nil {
		t.Errorf("another /etc is the same: %v", err)
	}
	if same, err := v.Same("/nowhere/at/all"); !same || err != nil {
		t.Errorf("what is in neither is not the same: %v", err)
	}
	root, err = os.OpenFile("/", unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	mine := view.Of(root, "/")
	defer mine.Close()
	for _, name := range []string{"/proc/self/environ", "/proc/self/cwd/x", "/proc/thread-self/status", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "/proc/self/root/etc/passwd"} {
		if got, err := text(mine, name); got != "" || !errors.Is(err, view.ErrElsewhere) {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	for _, name := range []string{"/", "/etc", dir} {
		if same, err := mine.Same(name); !same || err != nil {
			t.Errorf("%s is not the same: %v", name, err)
		}
	}
}

// A reader sees what the kernel would let him open.
func TestReader(t *testing.T) {
	dir := folder(t)
	const user, group, other = 64001, 64002, 64003
	for name, mode := range map[string]os.FileMode{"": 0o755, "sub": 0o700, "a.yaml": 0o640, "b.yaml": 0o604, "sub/c.yaml": 0o644, "acl.yaml": 0o640} {
		name = filepath.Join(dir, "etc", name)
		if filepath.Base(name) == "acl.yaml" {
			if err := os.WriteFile(name, []byte("acl"), mode); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(name, user, group); err != nil {
			testnet.Lacks(t, "root, who gives files away", err)
		}
	}
	// The group's bits of the mode are the mask then: another user may read, the group may not.
	acl := []byte{2, 0, 0, 0}
	for _, e := range []struct {
		tag, may uint16
		id       uint32
	}{{1, 6, 1<<32 - 1}, {2, 4, other}, {4, 0, 1<<32 - 1}, {16, 4, 1<<32 - 1}, {32, 0, 1<<32 - 1}} {
		acl = binary.LittleEndian.AppendUint16(acl, e.tag)
		acl = binary.LittleEndian.AppendUint16(acl, e.may)
		acl = binary.LittleEndian.AppendUint32(acl, e.id)
	}
	if err := unix.Setxattr(dir+"/etc/acl.yaml", "system.posix_acl_access", acl, 0); err != nil {
		testnet.Lacks(t, "ACLs of files", err)
	}
	for name, c := range map[string]struct {
		reader view.Reader
		sees   []string
	}{
		"owner":  {view.Reader{UID: user}, []string{"a.yaml", "acl.yaml", "b.yaml", "sub/c.yaml"}},
		"group":  {view.Reader{UID: other + 1, Groups: []uint32{group}}, []string{"a.yaml"}},
		"others": {view.Reader{UID: other + 1}, []string{"b.yaml"}},
	} {
		v, err := view.In(dir+"/etc", dir+"/etc", "agent.yaml", &c.reader)
		if err != nil {
			t.Fatal(err)
		}
		var sees []string
		for _, file := range []string{"a.yaml", "acl.yaml", "b.yaml", "sub/c.yaml"} {
			switch _, err := text(v, file); {
			case err == nil:
				sees = append(sees, file)
			case !errors.Is(err, fs.ErrPermission):
				t.Errorf("%s: %s: %v", name, file, err)
			}
		}
		if !reflect.DeepEqual(sees, c.sees) {
			t.Errorf("%s sees %q, want %q", name, sees, c.sees)
		}
	}
}
