package measure

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/testnet"
)

// counter reads the counter of a lab's drain over netlink: nft(8) reads every
// set of the namespace first, which takes longer than a measurement.
type counter struct {
	conn   *netlink.Conn
	family uint8 // of the table
}

func newCounter(n *testnet.Namespace, family string) (*counter, error) {
	c := &counter{family: map[string]uint8{"inet": unix.NFPROTO_INET, "netdev": unix.NFPROTO_NETDEV}[family]}
	return c, n.Do(func() (err error) {
		c.conn, err = netlink.Dial(unix.NETLINK_NETFILTER, nil)
		return err
	})
}

// read returns the packets that have survived since the lab was made.
func (c *counter) read() (uint64, error) {
	e := netlink.NewAttributeEncoder()
	e.String(unix.NFTA_OBJ_TABLE, "measure")
	e.String(unix.NFTA_OBJ_NAME, "survived")
	e.Uint32(unix.NFTA_OBJ_TYPE, binary.NativeEndian.Uint32([]byte{0, 0, 0, unix.NFT_OBJECT_COUNTER}))
	attributes, err := e.Encode()
	if err != nil {
		return 0, err
	}
	answer, err := c.conn.Execute(netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETOBJ),
			Flags: netlink.Request,
		},
		Data: append([]byte{c.family, unix.NFNETLINK_V0, 0, 0}, attributes...),
	})
	if err != nil {
		return 0, fmt.Errorf("read the counter of a lab: %w", err)
	}
	for _, m := range answer {
		if packets, ok := counted(m.Data); ok {
			return packets, nil
		}
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
