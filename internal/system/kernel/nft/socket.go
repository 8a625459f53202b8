package nft

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/netns"
)

// Namespace is what this process has in a network namespace: a count of its transactions,
// and sockets that are kept open.
type Namespace struct {
	id      string
	commits atomic.Uint64
	told    bool // which one it is
	mu      sync.Mutex
	keepers int
	spare   []*Socket
}

// namespaces are those that this process is in, by their identity. A count that starts again
// is none that others have seen.
var namespaces sync.Map // string to *Namespace

// Here is the network namespace of the calling thread.
func Here() *Namespace {
	id, err := netns.ID() // where it cannot be told, all are one
	n, _ := namespaces.LoadOrStore(id, &Namespace{id: id, told: err == nil})
	return n.(*Namespace)
}

// Keep lets sockets to nf_tables stay open in the network namespace of the calling thread
// until end is called. To close one waits until the kernel has freed what was deleted
// before, some milliseconds.
func Keep() (end func()) {
	n := Here()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.keepers++
	return sync.OnceFunc(n.end)
}

func (n *Namespace) end() {
	n.mu.Lock()
	var unused []*Socket
	if n.keepers--; n.keepers == 0 {
		unused, n.spare = n.spare, nil
		namespaces.CompareAndDelete(n.id, n) // it may be gone
	}
	n.mu.Unlock()
	for _, socket := range unused {
		_ = socket.Conn.Close()
	}
}

// Socket is a socket to nf_tables. It may have been used before, and has nothing to read.
type Socket struct {
	*netlink.Conn
	Of *Namespace
	// Granted is the size of the send buffer that package nfset was granted; 0: it did not
	// ask for one yet.
	Granted int
}

// Dial opens a socket in the network namespace of the calling thread; used by other
// threads it stays there.
func Dial() (*Socket, error) {
	n := Here()
	if socket := n.take(); socket != nil {
		return socket, nil
	}
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	return &Socket{Conn: conn, Of: n}, nil
}

func (n *Namespace) take() *Socket {
	n.mu.Lock()
	defer n.mu.Unlock()
	last := len(n.spare) - 1
	if last < 0 {
		return nil
	}
	socket := n.spare[last]
	n.spare = slices.Delete(n.spare, last, last+1)
	return socket
}

// Close closes the socket, or leaves it to the next.
func (s *Socket) Close() error {
	if s.Of.told && silent(s.Conn) && s.Of.keep(s) {
		return nil
	}
	return s.Conn.Close()
}

func (n *Namespace) keep(socket *Socket) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.keepers > 0 {
		n.spare = append(n.spare, socket)
	}
	return n.keepers > 0
}

// silent says that a socket has nothing to read: what was asked by it was answered.
func silent(conn *netlink.Conn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var nothing error
	err = raw.Control(func(fd uintptr) {
		_, _, nothing = unix.Recvfrom(int(fd), nil, unix.MSG_DONTWAIT|unix.MSG_PEEK)
	})
	return err == nil && errors.Is(nothing, unix.EAGAIN)
}
