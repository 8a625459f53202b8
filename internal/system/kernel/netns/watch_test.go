package netns_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/netns"
)

// TestWatch: a namespace is told of when it can be entered, and when it is gone.
func TestWatch(t *testing.T) {
	t.Parallel()
	testnet.New(t).Namespace("first") // the folder is there
	ctx, stop := context.WithCancel(t.Context())
	seen, ended := make(chan map[string]uint64, 1000), make(chan error, 1)
	go func() { ended <- netns.Watch(ctx, func(now map[string]uint64) { seen <- now }) }()
	await := func(what string, there func(map[string]uint64) bool) {
		t.Helper()
		for limit := time.After(time.Minute); ; {
			select {
			case now := <-seen:
				if there(now) {
					return
				}
			case err := <-ended:
				t.Fatal(err)
			case <-limit:
				t.Fatalf("%s is not noticed", what)
			}
		}
	}
	await("the beginning", func(map[string]uint64) bool { return true })
	net := testnet.New(t)
	made := net.Namespace("made")
	await("a new one", func(now map[string]uint64) bool {
		number, there := now[made.Name()]
		if !there {
			return false
		}
		n, err := netns.Named(made.Name())
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		if err := n.Do(func() error { return nil }); err != nil || number != uint64(n.Number()) {
			t.Errorf("number %d, want %d: %v", number, n.Number(), err)
		}
		return true
	})
	if err := net.Close(); err != nil {
		t.Fatal(err)
	}
	await("one that is gone", func(now map[string]uint64) bool { _, there := now[made.Name()]; return !there })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestWatchFolder: the folder is made with the first namespace, whose file is there before
// it, and goes with the last.
func TestWatchFolder(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "netns")
	file := filepath.Join(folder, "one")
	ctx, stop := context.WithCancel(t.Context())
	seen, ended := make(chan map[string]uint64, 1000), make(chan error, 1)
	go func() { ended <- netns.WatchIn(ctx, folder, func(now map[string]uint64) { seen <- now }) }()
	await := func(names int) {
		t.Helper()
		select {
		case now := <-seen:
			if len(now) != names {
				t.Fatalf("there is %v, want %d", now, names)
			}
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(time.Minute):
			t.Fatalf("%d are not noticed", names)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	await(0)
	for range 2 {
		do(os.Mkdir(folder, 0o700))
		do(os.WriteFile(file, nil, 0o600))
		time.Sleep(100 * time.Millisecond) // that it is looked at before
		if err := unix.Mount("/proc/self/ns/net", file, "", unix.MS_BIND, ""); err != nil {
			testnet.Lacks(t, "file systems to mount", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(file, unix.MNT_DETACH) })
		await(1)
		do(unix.Unmount(file, unix.MNT_DETACH))
		do(os.RemoveAll(folder))
		await(0)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
