package apply

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"sluice/internal/base/regular"
)

// followerFile is locked by whoever follows the host: by an agent for itself, by sync --follow
// for all that do the same.
const followerFile = "agent.lock"

// TakenError says that another process does what may be done once.
type TakenError struct {
	Holder string // as BusyError's
	Does   string // such as "follows the host"
}

func (e *TakenError) Error() string { return e.Holder + " " + e.Does }

// FollowAlone is for an agent: nobody else follows the host until it is released.
func (h *Host) FollowAlone() (release func(), err error) { return h.following(unix.LOCK_EX) }

// FollowBeside is for whoever follows the host beside others, an agent being none of them.
func (h *Host) FollowBeside() (release func(), err error) { return h.following(unix.LOCK_SH) }

func (h *Host) following(how int) (release func(), err error) {
	if err := needRoot(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	return take(filepath.Join(h.Dir, followerFile), how, "follows the host")
}

// Take locks a file of a name until it is released, or the process ends.
func Take(path, does string) (release func(), err error) { return take(path, unix.LOCK_EX, does) }

func take(path string, how int, does string) (release func(), err error) {
	f, err := regular.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open a lock: %w", err)
	}
	l := &lock{file: f}
	switch err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		err := &TakenError{Holder: l.holder(), Does: does}
		_ = f.Close()
		return nil, err
	case err != nil:
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return l.release, nil
}
