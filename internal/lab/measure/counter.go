package measure

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
)

// counter reads a counter of a lab's drain over netlink: nft(8) reads every set of
// the namespace first, which takes longer than a measurement. The socket is a plain
// one, since the kernel has the answer ready when it was asked: nothing waits.
type counter struct {
	fd      int
	request []byte
}

func newCounter(n *testnet.Namespace, family uint8) (*counter, error) {
	e := netlink.NewAttributeEncoder()
	e.String(unix.NFTA_OBJ_TABLE, "measure")
	e.String(unix.NFTA_OBJ_NAME, "survived")
	e.Uint32(unix.NFTA_OBJ_TYPE, binary.NativeEndian.Uint32([]byte{0, 0, 0, unix.NFT_OBJECT_COUNTER}))
	attributes, err := e.Encode()
	if err != nil {
		return nil, err
	}
	data := append([]byte{family, unix.NFNETLINK_V0, 0, 0}, attributes...)
	m := netlink.Message{
		Header: netlink.Header{
			Length: uint32(unix.SizeofNlMsghdr + len(data)),
			Type:   netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETOBJ),
			Flags:  netlink.Request,
		},
		Data: data,
	}
	c := &counter{}
	if c.request, err = m.MarshalBinary(); err != nil {
		return nil, err
	}
	return c, n.Do(func() (err error) {
		c.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		return err
	})
}

func (c *counter) close() error { return unix.Close(c.fd) }

// read returns the packets that have survived since the lab was made.
func (c *counter) read() (uint64, error) {
	if err := unix.Sendto(c.fd, c.request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("ask for the counter of a lab: %w", err)
	}
	buffer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(c.fd, buffer, unix.MSG_DONTWAIT)
	if err != nil {
		return 0, fmt.Errorf("read the counter of a lab: %w", err)
	}
	var m netlink.Message
	if err := m.UnmarshalBinary(buffer[:n]); err != nil {
		return 0, fmt.Errorf("read the counter of a lab: %w", err)
	}
	if packets, ok := counted(m.Data); ok && m.Header.Type != netlink.Error {
		return packets, nil
	}
	return 0, errors.New("read the counter of a lab: no counter in the answer")
}

// counted finds NFTA_COUNTER_PACKETS in an object.
func counted(message []byte) (packets uint64, found bool) {
	if len(message) < 4 {
		return 0, false
	}
	d, err := netlink.NewAttributeDecoder(message[4:])
	if err != nil {
		return 0, false
	}
	for d.Next() {
		if d.Type() != unix.NFTA_OBJ_DATA {
			continue
		}
		d.Nested(func(inner *netlink.AttributeDecoder) error {
			inner.ByteOrder = binary.BigEndian
			for inner.Next() {
				if inner.Type() == unix.NFTA_COUNTER_PACKETS {
					packets, found = inner.Uint64(), true
				}
			}
			return nil
		})
	}
	return packets, found && d.Err() == nil
}
