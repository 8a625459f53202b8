package replica

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Space is a network namespace that has no name.
type Space struct{ file *os.File }

// ownThread is the network namespace of the calling thread.
const ownThread = "/proc/thread-self/ns/net"

// Here is the namespace of the calling thread.
func Here() (*Space, error) {
	file, err := os.Open(ownThread)
	if err != nil {
		return nil, fmt.Errorf("find the present network namespace: %w", err)
	}
	return &Space{file}, nil
}

// Open is the namespace that a file stands for, such as /run/netns/NAME.
func Open(path string) (*Space, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("find a network namespace: %w", err)
	}
	return &Space{file}, nil
}

// New makes a namespace with nothing in it. The error is fs.ErrPermission where
// the process may not.
func New() (*Space, error) {
	var s *Space
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		var err error
		s, err = Here()
		return err
	})
	return s, err
}

// Do runs f inside of the space, on a thread of its own that ends with it. Sockets
// and programs that f opens and starts stay inside, goroutines do not.
func (s *Space) Do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return f()
	})
}

// Number is the inode's number, which the kernel shows for a namespace.
func (s *Space) Number() (uint32, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(s.file.Fd()), &st); err != nil {
		return 0, fmt.Errorf("find the number of a network namespace: %w", err)
	}
	return uint32(st.Ino), nil //nolint:gosec // the kernel numbers them with 32 bits
}

// Close gives the space up; it is gone when its last socket is closed.
func (s *Space) Close() error { return s.file.Close() }

// onThread runs f on a thread that nothing else runs on afterwards.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}
