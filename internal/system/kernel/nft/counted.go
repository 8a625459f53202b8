package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Counted is how many packets a counter object of a table has counted, in the network
// namespace of the calling thread; the family is one such as NFPROTO_INET. It asks the
// kernel for nothing else, where nft reads every set of the namespace first.
func Counted(family int, table, name string) (packets uint64, err error) {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETOBJ, 0)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(family), Version: nl.NFNETLINK_V0}) //nolint:gosec // a family has one byte
	request.AddData(nl.NewRtAttr(unix.NFTA_OBJ_TABLE, nl.ZeroTerminated(table)))
	request.AddData(nl.NewRtAttr(unix.NFTA_OBJ_NAME, nl.ZeroTerminated(name)))
	request.AddData(nl.NewRtAttr(unix.NFTA_OBJ_TYPE, binary.BigEndian.AppendUint32(nil, unix.NFT_OBJECT_COUNTER)))
	answers, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return 0, fmt.Errorf("read the counter %s: %w", name, err)
	}
	for _, answer := range answers {
		if value, found := attribute(answer[min(len(answer), nl.SizeofNfgenmsg):], unix.NFTA_OBJ_DATA, unix.NFTA_COUNTER_PACKETS); found && len(value) == 8 {
			return binary.BigEndian.Uint64(value), nil
		}
	}
	return 0, errors.New("read the counter " + name + ": no counter in the answer")
}

// attribute is the value of an attribute inside of others.
func attribute(message []byte, path ...uint16) (value []byte, found bool) {
	for len(message) >= unix.SizeofNlAttr {
		size := int(binary.NativeEndian.Uint16(message))
		if size < unix.SizeofNlAttr || size > len(message) {
			break
		}
		if binary.NativeEndian.Uint16(message[2:])&nl.NLA_TYPE_MASK == path[0] {
			value := message[unix.SizeofNlAttr:size]
			if len(path) == 1 {
				return value, true
			}
			return attribute(value, path[1:]...)
		}
		message = message[min((size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(message)):]
	}
	return nil, false
}
