package regular_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/base/regular"
)

// What is in the file's place between the look at it and its opening, a FIFO that
// nobody writes to, keeps nobody waiting.
func TestOpenNeverWaits(t *testing.T) {
	dir := t.TempDir()
	path, file, pipe := filepath.Join(dir, "path"), filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.WriteFile(file, []byte("text"), 0o600), unix.Mkfifo(pipe, 0o600), os.Link(file, path)); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for to := pipe; ; {
			select {
			case <-stop:
				return
			default:
			}
			next := filepath.Join(dir, "next")
			if err := errors.Join(os.Link(to, next), os.Rename(next, path)); err != nil {
				t.Error(err)
				return
			}
			if to == pipe {
				to = file
			} else {
				to = pipe
			}
		}
	})
	opened, refused := 0, 0
	for range 20_000 {
		f, err := regular.Open(path)
		if errors.Is(err, regular.Err) {
			refused++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(f); err != nil || string(text) != "text" {
			t.Fatalf("%q, %v", text, err)
		}
		_ = f.Close()
		opened++
	}
	close(stop)
	swapping.Wait()
	t.Logf("opened %d times, refused %d times", opened, refused)
}

func TestOpen(t *testing.T) {
	for path, want := range map[string]error{"/dev/zero": regular.Err, "none": os.ErrNotExist, ".": nil} {
		f, err := regular.Open(path)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
		if f != nil {
			_ = f.Close()
		}
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	name := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(name("ten"), []byte("0123456789"), 0o600), os.WriteFile(name("none"), nil, 0o600),
		unix.Mkfifo(name("pipe"), 0o600), os.Truncate(name("none"), 1<<40)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path string
		most int64
		want error
	}{
		{name("ten"), 10, nil},
		{name("ten"), 9, regular.ErrLarge},
		{name("none"), 10, regular.ErrLarge},
		{name("pipe"), 10, regular.Err},
		{"/dev/zero", 10, regular.Err},
		{"/proc/self/status", 10, regular.ErrLarge}, // its size is said to be 0
		{dir, 10, unix.EISDIR},
		{name("nowhere"), 10, os.ErrNotExist},
	} {
		text, err := regular.Read(test.path, test.most)
		if !errors.Is(err, test.want) || err == nil && string(text) != "0123456789" {
			t.Errorf("%s: %q, %v, want %v", test.path, text, err, test.want)
		}
		if unfit := errors.Is(test.want, regular.Err) || errors.Is(test.want, regular.ErrLarge); regular.Unfit(err) != unfit {
			t.Errorf("%s: unfit is %v", test.path, !unfit)
		}
	}
}

// A FIFO is neither written nor waited for, and a file is made where there is none.
func TestOpenFile(t *testing.T) {
	dir := t.TempDir()
	pipe, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "file")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{pipe: regular.Err, "/dev/null": regular.Err, file: nil} {
		for _, flag := range []int{os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND} {
			f, err := regular.OpenFile(path, flag|os.O_CREATE, 0o600)
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", path, err, want)
			}
			if f != nil {
				_ = f.Close()
			}
		}
	}
}
