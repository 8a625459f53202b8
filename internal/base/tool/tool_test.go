package tool

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPath(t *testing.T) {
	dir, admin, kept := t.TempDir(), t.TempDir(), folders
	t.Cleanup(func() { folders = kept })
	folders = []string{"/nowhere", admin}
	t.Setenv("PATH", dir)
	put := func(path string, mode fs.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(admin, "one"), 0o700)
	put(filepath.Join(admin, "two"), 0o700)
	put(filepath.Join(dir, "two"), 0o700)
	put(filepath.Join(admin, "text"), 0o600)
	for name, want := range map[string]string{"one": admin + "/one", "two": dir + "/two"} {
		if got, err := Path(name); err != nil || got != want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	for _, name := range []string{"text", "none"} {
		if got, err := Path(name); !errors.Is(err, exec.ErrNotFound) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

// A program that leaves another one behind, which holds its output, has ended.
func TestRun(t *testing.T) {
	cmd := Command(t.Context(), "sh", "-c", "sleep 1000 & echo $!; exit $0", "0")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := Run(cmd); err != nil {
		t.Error(err)
	}
	if err := exec.Command("kill", strings.TrimSpace(out.String())).Run(); err != nil {
		t.Errorf("what it left behind, %q: %v", out.String(), err)
	}
	var exit *exec.ExitError
	if err := Run(Command(t.Context(), "false")); !errors.As(err, &exit) {
		t.Error(err)
	}
	if err := Run(Command(t.Context(), "sluice-no-such-program")); !errors.Is(err, exec.ErrNotFound) {
		t.Error(err)
	}
}

// Whoever reads slowly reads anyway what a program has printed, even if that has
// ended long ago and another one holds its output.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	cmd := Command(t.Context(), "sh", "-c", "sleep 1000 & echo $! >&2; head -c 60000 /dev/zero")
	read := 0
	cmd.Stdout = writer(func(p []byte) (int, error) {
		if read == 0 {
			time.Sleep(grace + grace/2)
		}
		read += len(p)
		return len(p), nil
	})
	var left bytes.Buffer
	cmd.Stderr = &left
	if err := Run(cmd); err != nil || read != 60_000 {
		t.Errorf("%d bytes, %v", read, err)
	}
	if err := exec.Command("kill", strings.TrimSpace(left.String())).Run(); err != nil {
		t.Errorf("what it left behind, %q: %v", left.String(), err)
	}
}

// What the reader refuses, the program cannot print.
func TestRefused(t *testing.T) {
	refused := errors.New("enough")
	cmd := Command(t.Context(), "yes")
	cmd.Stdout = writer(func([]byte) (int, error) { return 0, refused })
	var exit *exec.ExitError
	if err := Run(cmd); !errors.As(err, &exit) {
		t.Error(err)
	}
	cmd = Command(t.Context(), "echo", "once")
	cmd.Stdout = writer(func([]byte) (int, error) { return 0, refused })
	if err := Run(cmd); !errors.Is(err, refused) {
		t.Error(err)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
