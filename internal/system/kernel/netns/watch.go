package netns

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// ip-netns(8) makes a file, and mounts a namespace over it some milliseconds later, of which
// nobody is told: behind an event it is looked again after this time, twice it, and so on.
const (
	lookAgain = 20 * time.Millisecond
	lookMost  = 2 * time.Second
)

// Watch calls changed with the network namespaces that ip-netns(8) knows, by their names,
// and with the inode number of each: once when it listens, and whenever they have changed,
// until the context ends or the folder cannot be watched. One that is rebuilt under its
// name has another number as long as somebody has the first open.
func Watch(ctx context.Context, changed func(map[string]uint64)) error {
	return watch(ctx, named, changed)
}

func watch(ctx context.Context, folder string, changed func(map[string]uint64)) error {
	failed := func(err error) error { return fmt.Errorf("watch the network namespaces: %w", err) }
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return failed(err)
	}
	defer func() { _ = watcher.Close() }()
	var last map[string]uint64
	pause := lookMost // until it is looked again; from lookMost on it is not
	for ctx.Err() == nil {
		// The folder is made with the first of them.
		err := watcher.Add(folder)
		if errors.Is(err, os.ErrNotExist) {
			if err = watcher.Add(filepath.Dir(folder)); err == nil {
				_ = watcher.Add(folder) // it may have come meanwhile
			}
		}
		if err != nil {
			return failed(err)
		}
		now := namespacesIn(folder)
		if last == nil || !maps.Equal(now, last) {
			last = now
			changed(maps.Clone(now))
		}
		var again <-chan time.Time
		if pause < lookMost {
			again = time.After(pause)
			pause *= 2
		}
		select {
		case <-ctx.Done():
		case <-again:
		case event := <-watcher.Events:
			if event.Name == folder || filepath.Dir(event.Name) == folder {
				pause = lookAgain
			}
		case err := <-watcher.Errors:
			pause = lookAgain
			if err != nil && !errors.Is(err, fsnotify.ErrEventOverflow) {
				return failed(err)
			}
		}
	}
	return nil
}

// namespacesIn are the files of a folder that stand for namespaces.
func namespacesIn(folder string) map[string]uint64 {
	out := map[string]uint64{}
	entries, _ := os.ReadDir(folder) // none where it is not there
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		var system unix.Statfs_t
		var file unix.Stat_t
		if unix.Statfs(path, &system) == nil && system.Type == unix.NSFS_MAGIC && unix.Stat(path, &file) == nil {
			out[e.Name()] = file.Ino
		}
	}
	return out
}
