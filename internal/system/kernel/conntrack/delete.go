package conntrack

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const messageDelete = 2 // IPCTNL_MSG_CT_DELETE

// Delete removes the entries that match accepts and says how many there were.
// Their next packet starts again, and is judged by the rules. An empty table is
// not listed: the kernel walks the buckets of the whole machine for that, 10 ms
// for a quarter of a million.
func Delete(match func(Entry) bool) (deleted int, err error) {
	if n, err := Count(); err == nil && n == 0 {
		return 0, nil
	}
	var requests []netlink.Message
	err = Walk(func(e *Entry) error {
		if match(*e) {
			requests = append(requests, e.deletion())
		}
		return nil
	})
	if err != nil || len(requests) == 0 {
		return 0, err
	}
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return 0, fmt.Errorf("open a netlink socket: %w", err)
	}
	defer conn.Close()
	_ = conn.SetOption(netlink.CapAcknowledge, true) // see adoptWithin
	for group := range slices.Chunk(requests, atOnce) {
		n, err := remove(conn, group)
		deleted += n
		if err != nil {
			return deleted, fmt.Errorf("delete from the connection table: %w", err)
		}
	}
	return deleted, nil
}

// remove sends one group of requests, and says how many entries were there still.
func remove(conn *netlink.Conn, group []netlink.Message) (removed int, err error) {
	group[len(group)-1].Header.Flags |= netlink.Acknowledge
	sent, err := conn.SendMessages(group)
	if err != nil {
		return 0, err
	}
	last := sent[len(sent)-1].Header.Sequence
	removed = len(group)
	for {
		sequence, number, err := receive(conn)
		switch {
		case err != nil:
			return 0, err
		case number == unix.ENOENT:
			removed--
		case number != 0:
			return removed, number
		}
		if sequence == last {
			return removed, nil
		}
	}
}

// deletion asks for exactly this entry: one of the same tuple that came later has another
// number (ctnetlink_del_conntrack of net/netfilter/nf_conntrack_netlink.c).
func (e *Entry) deletion() netlink.Message {
	family := byte(unix.AF_INET)
	if e.Family == 6 {
		family = unix.AF_INET6
	}
	data := []byte{family, unix.NFNETLINK_V0, 0, 0}
	data = appendAttribute(data, ctaOriginal|unix.NLA_F_NESTED, e.original)
	if e.Zone != 0 {
		data = appendAttribute(data, ctaZone, binary.BigEndian.AppendUint16(nil, e.Zone))
	}
	data = appendAttribute(data, ctaID, binary.BigEndian.AppendUint32(nil, e.id))
	return netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_CTNETLINK<<8 | messageDelete, Flags: netlink.Request},
		Data:   data,
	}
}

func appendAttribute(data []byte, kind uint16, v []byte) []byte {
	data = binary.NativeEndian.AppendUint16(data, uint16(len(v)+4)) //nolint:gosec // a tuple has some 70 bytes
	data = binary.NativeEndian.AppendUint16(data, kind)
	data = append(data, v...)
	return append(data, make([]byte, -len(v)&3)...)
}
