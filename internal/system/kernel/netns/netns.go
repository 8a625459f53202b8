// Package netns opens network namespaces and runs functions inside of them. The host
// of the engine is bound to one; the commands enter one with the flag --netns; the
// live trace makes some to copy a host into.
//
// A network namespace is a thread's, so a function runs inside of one on a thread that
// nothing else runs on. What it opens and starts stays inside: sockets, files below
// /proc/thread-self/net, programs. Goroutines that it starts run on any thread, so one
// that speaks to the kernel enters again what its starter was [Here] in.
package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// named is the folder of ip-netns(8).
	named = "/run/netns"
	// own is the network namespace of the calling thread; /proc/self is the first
	// thread's.
	own = "/proc/thread-self/ns/net"
)

// Namespace is a network namespace. It lives at least until it is closed. The nil
// Namespace is the one that a caller is in.
type Namespace struct {
	file   *os.File
	inside unix.Stat_t
	called string // in an error
}

// Here is the namespace of the calling thread.
func Here() (*Namespace, error) { return Open(own) }

// Named is the namespace that ip-netns(8) knows by a name. The error is
// fs.ErrNotExist where there is none.
func Named(name string) (*Namespace, error) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return nil, fmt.Errorf("network namespace %q: %w", name, fs.ErrNotExist)
	}
	n, err := Open(filepath.Join(named, name))
	if err == nil {
		n.called = "network namespace " + name
	}
	return n, err
}

// Names are those that ip-netns(8) knows, sorted.
func Names() ([]string, error) {
	entries, err := os.ReadDir(named)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list network namespaces: %w", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// Open is the namespace that a file stands for, such as /run/netns/NAME.
func Open(path string) (*Namespace, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("find a network namespace: %w", err)
	}
	n := &Namespace{file: file, called: "a network namespace"}
	if err := unix.Fstat(n.Descriptor(), &n.inside); err != nil {
		return nil, errors.Join(fmt.Errorf("find a network namespace: %w", err), file.Close())
	}
	return n, nil
}

// New makes a namespace with nothing in it. The error is fs.ErrPermission where the
// process may not.
func New() (n *Namespace, err error) {
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		n, err = Here()
		return err
	})
	return n, err
}

// Close gives the namespace up. One without a name is gone when its last socket and
// process are.
func (n *Namespace) Close() error {
	if n == nil {
		return nil
	}
	return n.file.Close()
}

// Number is the inode's number, which the kernel shows for a namespace.
func (n *Namespace) Number() uint32 { return uint32(n.inside.Ino) } //nolint:gosec // the kernel numbers them with 32 bits

// Descriptor is the open file that stands for the namespace, for the kernel
// (IFLA_NET_NS_FD).
func (n *Namespace) Descriptor() int { return int(n.file.Fd()) }

// Do runs f inside of the namespace, on a thread of its own that ends with it. Of nil
// it runs f where the caller is. The error is f's, or says that the namespace cannot
// be entered; who is inside already needs no right to.
func (n *Namespace) Do(f func() error) error {
	if n == nil {
		return f()
	}
	return onThread(func() error {
		var here unix.Stat_t
		if err := unix.Stat(own, &here); err != nil || !same(here, n.inside) {
			if err := n.enter(); err != nil {
				return fmt.Errorf("enter %s: %w", n.called, err)
			}
		}
		if id, err := identity(); err == nil {
			thread := unix.Gettid()
			inside.Store(thread, id)
			defer inside.Delete(thread)
		}
		return f()
	})
}

// inside are the identities of what threads of Do are in, by their numbers: these stay.
var inside sync.Map // int to string

// enter brings the calling thread into the namespace, which nobody closes meanwhile.
func (n *Namespace) enter() error {
	raw, err := n.file.SyscallConn()
	if err != nil {
		return err
	}
	var refused error
	err = raw.Control(func(fd uintptr) { refused = unix.Setns(int(fd), unix.CLONE_NEWNET) })
	return errors.Join(err, refused)
}

// Resolver looks names up from inside of the namespace. The standard library's own asks
// from threads of its choice.
func (n *Namespace) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = n.Do(func() error {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}}
}

// Dial connects as net.Dialer does, from inside of the namespace: the standard library asks
// for names, and tries several addresses, on threads of its choice.
func (n *Namespace) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addresses := []string{host}
	if _, err := netip.ParseAddr(host); err != nil {
		if addresses, err = n.Resolver().LookupHost(ctx, host); err != nil {
			return nil, err
		}
	}
	var failed []error
	for _, a := range addresses {
		err := n.Do(func() error {
			conn, err = new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(a, port))
			return err
		})
		if err == nil {
			return conn, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

// errEnded says that a function has ended its goroutine, as runtime.Goexit does.
var errEnded = errors.New("what ran in a network namespace ended without an answer")

// onThread runs f on a thread that nothing else runs on afterwards.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errEnded
		defer func() { done <- err }()
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() != unix.Getpid() {
			err = f()
			return
		}
		// The first thread would stay, and is what /proc/self shows to everybody. While
		// it is held here, another one is taken.
		err = onThread(f)
		runtime.UnlockOSThread()
	}()
	return <-done
}

// Name is the name under which ip-netns(8) knows the network namespace that the calling
// thread is in, "" when it has none.
func Name() (string, error) {
	var here unix.Stat_t
	if err := unix.Stat(own, &here); err != nil {
		return "", fmt.Errorf("find the network namespace: %w", err)
	}
	names, err := Names()
	for _, name := range names {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(named, name), &st) == nil && same(here, st) {
			return name, nil
		}
	}
	return "", err
}

func same(a, b unix.Stat_t) bool { return a.Dev == b.Dev && a.Ino == b.Ino }

// ID is identity, of a thread that Do runs on without asking again.
func ID() (string, error) {
	if id, known := inside.Load(unix.Gettid()); known {
		return id.(string), nil
	}
	return identity()
}

// identity tells the network namespace of the calling thread from all others, those before it
// included, until the machine is started again. Kernels before 5.14 give an inode's
// number instead (SO_NETNS_COOKIE is not known to them), which a later namespace may
// have too.
func identity() (string, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		_ = unix.Close(fd)
		if err == nil {
			return "cookie " + strconv.FormatUint(cookie, 10), nil
		}
	}
	var here unix.Stat_t
	if err := unix.Stat(own, &here); err != nil {
		return "", fmt.Errorf("find the network namespace: %w", err)
	}
	return fmt.Sprintf("inode %d %d", here.Dev, here.Ino), nil
}
