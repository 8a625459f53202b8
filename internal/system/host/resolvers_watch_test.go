package host

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestWatchFiles: a file that is written, replaced, removed, made in a folder that comes
// late, and one that a link leads to are all noticed; what is beside them is not.
func TestWatchFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) { t.Helper(); do(os.WriteFile(at(name), []byte(text), 0o600)) }
	do(os.Mkdir(at("run"), 0o700))
	do(os.Mkdir(at("etc"), 0o700))
	write("run/stub.conf", "1")
	do(os.Symlink("../run/stub.conf", at("etc/resolv.conf")))
	ctx, stop := context.WithCancel(t.Context())
	events := make(chan struct{}, 1000)
	ended := make(chan error, 1)
	go func() {
		ended <- watchFiles(ctx, []string{at("etc/resolv.conf"), at("etc/netns/a/resolv.conf")}, func() { events <- struct{}{} })
	}()
	drain := func() {
		for {
			select {
			case <-events:
			default:
				return
			}
		}
	}
	// noticed tries until an event comes, since nobody says when it listens.
	noticed := func(what string, try func()) {
		t.Helper()
		drain()
		for range 600 {
			try()
			select {
			case <-events:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
		t.Fatalf("%s was not noticed", what)
	}
	noticed("a file that a link leads to", func() { write("run/stub.conf", "2") })
	noticed("its replacement", func() { write("run/new", "3"); do(os.Rename(at("run/new"), at("run/stub.conf"))) })
	noticed("a link that leads elsewhere", func() {
		write("run/other.conf", "4")
		do(os.Symlink("../run/other.conf", at("etc/next")))
		do(os.Rename(at("etc/next"), at("etc/resolv.conf")))
	})
	noticed("what it leads to now", func() { write("run/other.conf", "5") })
	noticed("a file in place of the link", func() { write("etc/next", "6"); do(os.Rename(at("etc/next"), at("etc/resolv.conf"))) })
	noticed("a file in a folder that comes late", func() {
		do(os.MkdirAll(at("etc/netns/a"), 0o700))
		write("etc/netns/a/resolv.conf", "7")
	})
	noticed("a change of that", func() { write("etc/netns/a/resolv.conf", "8") })
	noticed("its removal", func() { _ = os.Remove(at("etc/netns/a/resolv.conf")) })
	// What is beside the files is no event: that of the file behind it is the next one.
	time.Sleep(time.Second) // events on their way
	drain()
	write("etc/passwd", "9")
	time.Sleep(time.Second)
	if len(events) != 0 {
		t.Error("a file beside it was noticed")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
