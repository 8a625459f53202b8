package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// nfgenmsg is how many bytes are before the attributes of a message.
const nfgenmsg = 4

// Count makes a transaction, and counts it where the number that generation gives has
// risen over it: the kernel ignores one that changes nothing. Where that cannot be told, it
// is not counted.
func (n *Namespace) Count(generation func() (uint32, error), transaction func() error) error {
	before, unknown := generation()
	if err := transaction(); err != nil {
		return err
	}
	if after, err := generation(); unknown == nil && err == nil && after != before {
		n.commits.Add(1)
	}
	return nil
}

// Commits is how many transactions of this process have changed something in the network
// namespace of the calling thread. Where the generation has risen by as many since, nobody
// else made one.
func Commits() uint64 { return Here().commits.Load() }

// Generation is the number of the ruleset's state in the network namespace of
// the calling thread. Every transaction of anybody that changes something raises it, so an
// equal number means an untouched ruleset; what the kernel itself adds to dynamic
// sets does not count.
func Generation() (uint32, error) {
	n, _, err := State()
	return n, err
}

// State is Generation and Commits.
func State() (generation uint32, commits uint64, err error) {
	conn, err := Dial()
	if err != nil {
		return 0, 0, err
	}
	generation, err = GenerationBy(conn.Conn)
	return generation, conn.Of.commits.Load(), errors.Join(err, conn.Close())
}

// asked numbers requests for a generation.
var asked atomic.Uint32

// GenerationBy is Generation in the network namespace of a socket, which has nothing to
// read. The kernel has answered when the request is sent, so nobody has to be woken.
func GenerationBy(conn *netlink.Conn) (uint32, error) {
	failed := func(err error) (uint32, error) {
		return 0, fmt.Errorf("ask for the ruleset's generation: %w", err)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return failed(err)
	}
	m := message(unix.NFT_MSG_GETGEN, 0, nil)
	m.Header.Length, m.Header.Sequence = uint32(unix.SizeofNlMsghdr+len(m.Data)), asked.Add(1) //nolint:gosec // a few bytes
	request, err := m.MarshalBinary()
	if err != nil {
		return failed(err)
	}
	var refused error
	if err := raw.Write(func(fd uintptr) bool {
		refused = unix.Sendto(int(fd), request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return !again(refused)
	}); err != nil || refused != nil {
		return failed(errors.Join(err, refused))
	}
	answer := make([]byte, 512)
	for {
		n := 0
		if err := raw.Read(func(fd uintptr) bool {
			n, _, refused = unix.Recvfrom(int(fd), answer, unix.MSG_DONTWAIT)
			return !again(refused)
		}); err != nil || refused != nil {
			return failed(errors.Join(err, refused))
		}
		var a netlink.Message
		if err := a.UnmarshalBinary(answer[:n]); err != nil {
			return failed(err)
		}
		if a.Header.Sequence == m.Header.Sequence {
			return generationIn(a)
		}
	}
}

func again(err error) bool { return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) }

func generationIn(a netlink.Message) (uint32, error) {
	if a.Header.Type == netlink.Error && len(a.Data) >= 4 {
		return 0, fmt.Errorf("ask for the ruleset's generation: %w", unix.Errno(-int32(binary.NativeEndian.Uint32(a.Data)))) //nolint:gosec // it is one
	}
	attributes, err := netlink.UnmarshalAttributes(a.Data[min(nfgenmsg, len(a.Data)):])
	if err != nil {
		return 0, fmt.Errorf("read the ruleset's generation: %w", err)
	}
	for _, attribute := range attributes {
		if attribute.Type == unix.NFTA_GEN_ID && len(attribute.Data) == 4 {
			return binary.BigEndian.Uint32(attribute.Data), nil
		}
	}
	return 0, errors.New("the kernel gives no generation of the ruleset")
}
