package conntrack

import (
	"encoding/binary"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const messageStatistics = 4 // IPCTNL_MSG_CT_GET_STATS_CPU

// The counters of the table, enum ctattr_stats_cpu of
// include/uapi/linux/netfilter/nfnetlink_conntrack.h, by the names of conntrack(8).
// Those that the kernel does not count any more are left out.
var counterNames = map[uint16]string{
	2: "found", 4: "invalid", 8: "insert", 9: "insert_failed", 10: "drop", 11: "early_drop",
	12: "error", 13: "search_restart", 14: "clash_resolve", 15: "chaintoolong",
}

// Statistics asks for the counters of one namespace's table again and again.
type Statistics struct{ conn *netlink.Conn }

// OpenStatistics opens those of the calling thread's namespace. The caller closes
// them.
func OpenStatistics() (*Statistics, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	return &Statistics{conn}, nil
}

// Close closes the socket.
func (s *Statistics) Close() error { return s.conn.Close() }

// Read gives the counters by name, summed over the processors. The kernel's have 32
// bits and begin at 0 again: take the difference of two as it is.
func (s *Statistics) Read() (map[string]uint32, error) {
	messages, err := s.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_CTNETLINK<<8 | messageStatistics, Flags: netlink.Request | netlink.Dump},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
		return nil, fmt.Errorf("read the counters of the connection table: %w", err)
	}
	sum := map[string]uint32{}
	for _, m := range messages {
		if err := addCounters(sum, m.Data); err != nil {
			return nil, fmt.Errorf("read the counters of the connection table: %w", err)
		}
	}
	return sum, nil
}

// addCounters adds those of one processor.
func addCounters(sum map[string]uint32, message []byte) error {
	if len(message) < 4 {
		return fmt.Errorf("message of %d bytes", len(message))
	}
	d, err := netlink.NewAttributeDecoder(message[4:])
	if err != nil {
		return err
	}
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		if name := counterNames[d.Type()]; name != "" {
			sum[name] += d.Uint32()
		}
	}
	return d.Err()
}
