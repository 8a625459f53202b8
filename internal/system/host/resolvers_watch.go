package host

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// WatchResolvers calls changed whenever the files that [Resolvers] reads may have
// changed, until the context ends or they cannot be watched. Folders are watched and not
// the files, which are replaced by others and may be links: those that hold a file, what
// a link leads to, or, where a folder is missing, the nearest one above.
func WatchResolvers(ctx context.Context, namespace string, changed func()) error {
	files := []string{resolvConf, resolvedConf}
	if namespace != "" {
		files = append(files, namespaceConf(namespace))
	}
	return watchFiles(ctx, files, changed)
}

func watchFiles(ctx context.Context, files []string, changed func()) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", strings.Join(files, ", "), err)
	}
	defer func() { _ = watcher.Close() }()
	for {
		paths := withTargets(files)
		if err := watchFolders(watcher, paths); err != nil {
			return fmt.Errorf("watch %s: %w", strings.Join(files, ", "), err)
		}
		select {
		case <-ctx.Done():
			return nil
		case event := <-watcher.Events:
			if slices.ContainsFunc(paths, func(p string) bool { return p == event.Name || strings.HasPrefix(p, event.Name+"/") }) {
				changed()
			}
		case err := <-watcher.Errors: // events may have been lost
			changed()
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("watch %s: %w", strings.Join(files, ", "), err)
			}
		}
	}
}

// withTargets adds what links lead to.
func withTargets(files []string) []string {
	out := slices.Clone(files)
	for _, f := range files {
		if target, err := filepath.EvalSymlinks(f); err == nil && !slices.Contains(out, target) {
			out = append(out, target)
		}
	}
	return out
}

// watchFolders watches the folders of the files, or the nearest that are there, and no
// other.
func watchFolders(watcher *fsnotify.Watcher, files []string) error {
	var folders []string
	for _, f := range files {
		for folder := filepath.Dir(f); ; folder = filepath.Dir(folder) {
			if readable(folder) {
				folders = append(folders, folder)
				break
			}
			if folder == "/" {
				break
			}
		}
	}
	for _, old := range watcher.WatchList() {
		if !slices.Contains(folders, old) {
			_ = watcher.Remove(old) // it may be gone
		}
	}
	for _, f := range folders {
		if err := watcher.Add(f); err != nil && readable(f) {
			return err
		}
	}
	return nil
}
