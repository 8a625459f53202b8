package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ReplaceTable makes a table of family inet again in the network namespace of the
// calling thread, with empty chains that no hook calls, in one transaction. It takes
// a hundredth of what nft takes.
func ReplaceTable(table string, chains ...string) error {
	conn, err := Dial()
	if err != nil {
		return err
	}
	err = Here().Count(Generation, func() error { return replaceTable(conn.Conn, table, chains) })
	if err = errors.Join(err, conn.Close()); err != nil {
		return fmt.Errorf("make table inet %s again: %w", table, err)
	}
	return nil
}

func replaceTable(conn *netlink.Conn, table string, chains []string) error {
	var batch []netlink.Message
	add := func(kind int, flags netlink.HeaderFlags, attributes func(*netlink.AttributeEncoder)) error {
		e := netlink.NewAttributeEncoder()
		attributes(e)
		data, err := e.Encode()
		batch = append(batch, message(kind, flags, data))
		return err
	}
	named := func(e *netlink.AttributeEncoder) { e.String(unix.NFTA_TABLE_NAME, table) }
	// Adding first makes deleting work where the table was not there.
	err := errors.Join(add(unix.NFT_MSG_NEWTABLE, netlink.Create, named), add(unix.NFT_MSG_DELTABLE, 0, named), add(unix.NFT_MSG_NEWTABLE, netlink.Create, named))
	for _, name := range chains {
		err = errors.Join(err, add(unix.NFT_MSG_NEWCHAIN, netlink.Create, func(e *netlink.AttributeEncoder) {
			e.String(unix.NFTA_CHAIN_TABLE, table)
			e.String(unix.NFTA_CHAIN_NAME, name)
		}))
	}
	if err != nil {
		return err
	}
	_, err = Transact(conn, batch)
	return err
}

// message is one to nf_tables about a table of family inet.
func message(kind int, flags netlink.HeaderFlags, attributes []byte) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request | flags},
		Data:   append([]byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}, attributes...),
	}
}

// Transact makes one transaction of messages to nf_tables, and gives them as they were
// sent, behind the one that begins it.
func Transact(conn *netlink.Conn, messages []netlink.Message) (sent []netlink.Message, err error) {
	whole := append([]netlink.Message{edge(unix.NFNL_MSG_BATCH_BEGIN)}, messages...)
	whole[len(whole)-1].Header.Flags |= netlink.Acknowledge
	if sent, err = conn.SendMessages(append(whole, edge(unix.NFNL_MSG_BATCH_END))); err == nil {
		// One answer is asked for; where something is refused, the first one says so.
		_, err = conn.Receive()
	}
	return sent, err
}

// edge is the first or the last message of a transaction.
func edge(kind int) netlink.Message {
	data := binary.BigEndian.AppendUint16([]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0}, unix.NFNL_SUBSYS_NFTABLES)
	return netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request}, Data: data}
}
