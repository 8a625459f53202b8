package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// From include/uapi/linux/netfilter/nf_tables.h and nfnetlink.h.
const (
	newTable     = 0  // NFT_MSG_NEWTABLE
	deleteTable  = 2  // NFT_MSG_DELTABLE
	newChain     = 3  // NFT_MSG_NEWCHAIN
	beginOfBatch = 16 // NFNL_MSG_BATCH_BEGIN
	endOfBatch   = 17 // NFNL_MSG_BATCH_END
)

// ReplaceTable makes a table of family inet anew in the network namespace of the
// calling thread, with empty chains that no hook calls, in one transaction. It takes
// a hundredth of what nft takes.
func ReplaceTable(table string, chains ...string) error {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("open a netlink socket: %w", err)
	}
	err = replaceTable(conn, table, chains)
	if err == nil {
		Here().Committed()
	}
	if err = errors.Join(err, conn.Close()); err != nil {
		return fmt.Errorf("make table inet %s anew: %w", table, err)
	}
	return nil
}

func replaceTable(conn *netlink.Conn, table string, chains []string) error {
	batch := []netlink.Message{edge(beginOfBatch)}
	add := func(kind int, flags netlink.HeaderFlags, attributes func(*netlink.AttributeEncoder)) error {
		e := netlink.NewAttributeEncoder()
		attributes(e)
		data, err := e.Encode()
		batch = append(batch, netlink.Message{
			Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request | flags},
			Data:   append([]byte{protocolInet, unix.NFNETLINK_V0, 0, 0}, data...),
		})
		return err
	}
	named := func(e *netlink.AttributeEncoder) { e.String(nameOfTable, table) }
	// Adding first makes deleting work where the table was not there.
	err := errors.Join(add(newTable, netlink.Create, named), add(deleteTable, 0, named), add(newTable, netlink.Create, named))
	for _, name := range chains {
		err = errors.Join(err, add(newChain, netlink.Create, func(e *netlink.AttributeEncoder) {
			e.String(ofTable, table)
			e.String(nameOfChain, name)
		}))
	}
	if err != nil {
		return err
	}
	batch[len(batch)-1].Header.Flags |= netlink.Acknowledge
	if _, err := conn.SendMessages(append(batch, edge(endOfBatch))); err != nil {
		return err
	}
	// One answer is asked for; where something is refused, the first one says so.
	_, err = conn.Receive()
	return err
}

// edge is the first or the last message of a transaction.
func edge(kind int) netlink.Message {
	data := binary.BigEndian.AppendUint16([]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0}, unix.NFNL_SUBSYS_NFTABLES)
	return netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request}, Data: data}
}
