package kernels

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// entry is one of the archive that a guest writes.
type entry struct {
	name, text string
	kind       byte
}

// disk is what a guest leaves: an archive, and nothing behind it.
func disk(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.text)), Typeflag: tar.TypeReg}
		if e.kind != 0 {
			h.Typeflag, h.Size = e.kind, 0
		}
		if e.kind == tar.TypeSymlink {
			h.Linkname, e.text = e.text, ""
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return append(out.Bytes(), make([]byte, 4096)...)
}

// read unpacks a disk into a directory, and returns what is in it.
func read(t testing.TB, data []byte, results ...string) (files map[string]string, status int, err error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "disk")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	to := map[string]string{}
	for _, r := range results {
		to[r] = filepath.Join(inside, filepath.Base(r))
	}
	status, err = unpack(file, to)
	files = map[string]string{}
	walked := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path == file {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(inside, path)
		files[name] = string(text)
		return err
	})
	if walked != nil {
		t.Fatal(walked)
	}
	return files, status, err
}

var (
	passed = entry{name: "lab/status", text: "0\n"}
	end    = entry{name: "lab/end"}
)

func TestResults(t *testing.T) {
	files, status, err := read(t, disk(t, entry{name: "lab/status", text: "3\n"}, entry{name: "tmp/report.json", text: "{}"},
		entry{name: "tmp/logs/", kind: tar.TypeDir}, entry{name: "tmp/logs/a/b.log", text: "line\n"},
		entry{name: "tmp/logsmore", text: "not asked for"}, entry{name: "etc/shadow", text: "not asked for"},
		entry{name: "usr/lib/x", text: "by its real name"},
		entry{name: "tmp/logs/link", text: "/etc/passwd", kind: tar.TypeSymlink}, end), "/tmp/report.json", "/tmp/logs", "/lib/x")
	if err != nil || status != 3 {
		t.Fatalf("status %d, %v", status, err)
	}
	want := map[string]string{"report.json": "{}", "logs/a/b.log": "line\n", "x": "by its real name"}
	for name, text := range want {
		if files[name] != text {
			t.Errorf("%s: %q, want %q", name, files[name], text)
		}
	}
	if len(files) != len(want) {
		t.Errorf("%q", files)
	}
}

func TestBadResults(t *testing.T) {
	whole := disk(t, passed, entry{name: "tmp/r", text: strings.Repeat("x", 3000)}, end)
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"an empty disk":                     {make([]byte, 1<<16), errNoStatus.Error()},
		"no disk at all":                    {nil, errNoStatus.Error()},
		"something else":                    {bytes.Repeat([]byte("Kernel panic - not syncing\n"), 100), "read the guest's results"},
		"no status":                         {disk(t, entry{name: "tmp/r"}, end), errNoStatus.Error()},
		"a status that is none":             {disk(t, entry{name: "lab/status", text: "killed"}, end), "read the guest's exit status"},
		"an endless status":                 {disk(t, entry{name: "lab/status", text: strings.Repeat("0", 5000)}, end), "the command made no /tmp/r"},
		"a result that was not made":        {disk(t, passed, end), "the command made no /tmp/r"},
		"cut off in a file":                 {whole[:1600], "unexpected EOF"},
		"cut off between files":             {disk(t, passed, entry{name: "tmp/r"}), errCutOff.Error()},
		"cut off, and the rest is zero":     {append(slices.Clone(whole[:2048]), make([]byte, 1<<16)...), errCutOff.Error()},
		"a broken header behind the status": {append(slices.Clone(whole[:1024]), bytes.Repeat([]byte{0xff}, 1024)...), "read the guest's results"},
	} {
		if _, _, err := read(t, c.data, "/tmp/r"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Whatever a guest writes, no file appears but where results are wanted.
func FuzzUnpack(f *testing.F) {
	f.Add(disk(f, passed, entry{name: "tmp/r/../../../../out", text: "x"}, end))
	f.Add(disk(f, passed, entry{name: "tmp/r/ok", text: "x"}, entry{name: "tmp/r/ok/below", text: "x"}, end))
	f.Add(disk(f, passed, entry{name: "/tmp/r", text: "x"}, end))
	f.Add([]byte("no archive"))
	f.Fuzz(func(t *testing.T, data []byte) {
		files, _, err := read(t, data, "/tmp/r")
		for name := range files {
			if name != "r" && !strings.HasPrefix(name, "r/") {
				t.Errorf("it wrote %q", name)
			}
		}
		if errors.Is(err, errNoStatus) && bytes.Contains(data, []byte("lab/status")) && len(files) > 0 {
			t.Skip() // results before a status that never came
		}
	})
}

func TestResultsStayInside(t *testing.T) {
	files, _, err := read(t, disk(t, passed, entry{name: "tmp/r/../../../out", text: "x"}, entry{name: "tmp/r/in", text: "x"}, end), "/tmp/r")
	if err != nil || len(files) != 1 || files["r/in"] != "x" {
		t.Errorf("%q, %v", files, err)
	}
}
