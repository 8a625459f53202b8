package regular

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"
)

// Replace writes a file that there is in one step, keeping its permissions, its owner and the
// link that may lead to it.
func Replace(name string, text []byte) error {
	target, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	was, err := os.Stat(target)
	if err != nil {
		return err
	}
	f, err := renameio.NewPendingFile(target, renameio.WithExistingPermissions())
	if err == nil {
		Own(f.File, was)
		if _, err = f.Write(text); err == nil {
			err = f.CloseAtomicallyReplace()
		}
		_ = f.Cleanup()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// Own gives a file the owner of another, as far as this process may.
func Own(f *os.File, as os.FileInfo) {
	if of, is := as.Sys().(*syscall.Stat_t); is {
		_ = f.Chown(int(of.Uid), int(of.Gid))
	}
}
