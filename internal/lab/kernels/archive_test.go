package kernels

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/u-root/u-root/pkg/cpio"
)

// unpacked are the records of an archive, by name, once it is seen that each comes
// behind its directory: the kernel unpacks them in their order.
func unpacked(t *testing.T, a *archive) map[string]cpio.Record {
	t.Helper()
	var out bytes.Buffer
	if err := a.write(&out); err != nil {
		t.Fatal(err)
	}
	r := cpio.Newc.Reader(bytes.NewReader(out.Bytes()))
	records := map[string]cpio.Record{}
	for {
		record, err := r.ReadRecord()
		if errors.Is(err, io.EOF) {
			return records
		}
		if err != nil {
			t.Fatal(err)
		}
		if dir := path.Dir(record.Name); dir != "." {
			if d, there := records[dir]; !there || d.Mode&cpio.S_IFMT != cpio.S_IFDIR {
				t.Errorf("%s is not behind its directory", record.Name)
			}
		}
		records[record.Name] = record
	}
}

func contents(t *testing.T, record cpio.Record) string {
	t.Helper()
	text := make([]byte, record.FileSize)
	if _, err := record.ReadAt(text, 0); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return string(text)
}

func TestArchive(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"tree/x": "x", "tree/deep/y": "y", "one": "1"} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("deep/y", filepath.Join(dir, "tree", "link")); err != nil {
		t.Fatal(err)
	}
	a := newArchive()
	a.text("init", "#!/bin/sh\n", 0o755)
	if err := errors.Join(a.copy("/lib/tree", filepath.Join(dir, "tree")), a.copy("etc/one", filepath.Join(dir, "one"))); err != nil {
		t.Fatal(err)
	}
	a.text("etc/one", "replaced", 0o600)
	if err := a.copy("x", filepath.Join(dir, "nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	got := unpacked(t, a)
	for name, want := range map[string]string{
		"init": "#!/bin/sh\n", "usr/lib/tree/x": "x", "usr/lib/tree/deep/y": "y", "usr/lib/tree/link": "deep/y",
		"etc/one": "replaced", "lib": "usr/lib", "bin": "usr/bin",
	} {
		if record, there := got[name]; !there || contents(t, record) != want {
			t.Errorf("%s: %q, want %q", name, contents(t, record), want)
		}
	}
	for name, mode := range map[string]uint64{
		"init": cpio.S_IFREG | 0o755, "usr/lib/tree/x": cpio.S_IFREG | 0o640, "tmp": cpio.S_IFDIR | 0o1777, "lib": cpio.S_IFLNK | 0o777,
	} {
		if got[name].Mode != mode {
			t.Errorf("%s has mode %o, want %o", name, got[name].Mode, mode)
		}
	}
}

// Equal guests are made of equal files: times of the files are not in them.
func TestArchiveIsTheSameAgain(t *testing.T) {
	pack := func() []byte {
		a := newArchive()
		if err := a.program("sh"); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := a.write(&out); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	if !bytes.Equal(pack(), pack()) {
		t.Error("two archives of the same differ")
	}
}

// A program comes with its loader and libraries, each under the path at which it is
// looked for, over links if need be.
func TestProgramsRunInTheGuest(t *testing.T) {
	a := newArchive()
	for _, name := range []string{"sh", "ls"} {
		if err := a.program(name); err != nil {
			t.Fatal(err)
		}
	}
	got := unpacked(t, a)
	follow := func(name string) string {
		for range 40 {
			name = inGuest(name)
			record, there := got[name]
			if !there {
				return ""
			}
			if record.Mode&cpio.S_IFMT != cpio.S_IFLNK {
				return name
			}
			to := contents(t, record)
			if !strings.HasPrefix(to, "/") {
				to = path.Join(path.Dir(name), to)
			}
			name = to
		}
		return ""
	}
	all, err := libraries(find("ls"))
	if err != nil || len(all) == 0 {
		t.Fatalf("libraries of ls: %q, %v", all, err)
	}
	for _, name := range append(all, "/usr/bin/sh", "/bin/ls") {
		if follow(name) == "" {
			t.Errorf("%s leads nowhere", name)
		}
	}
	if err := a.program("no-such-program"); err == nil || !strings.Contains(err.Error(), "missing on this machine: no-such-program") {
		t.Errorf("a program that is not here: %v", err)
	}
}
