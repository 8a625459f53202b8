package regular_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/regular"
)

// What stands in the file's place between the look at it and its opening, a FIFO that
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
