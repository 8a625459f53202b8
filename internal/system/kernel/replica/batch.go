package replica

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// transaction is how many bytes go into one.
	transaction = 1 << 20
	// listSize is how many bytes of elements go into one message: the length of
	// an attribute has 16 bits.
	listSize = 48 << 10
)

// batch gathers what goes to nf_tables in one transaction. After an error it does
// nothing more.
type batch struct {
	conn     *netlink.Conn
	messages []netlink.Message
	names    []string // what each message makes
	size     int
	err      error
}

func (b *batch) add(kind uint16, flags netlink.HeaderFlags, o object, name string) {
	if b.err != nil {
		return
	}
	data, err := o.data()
	if err != nil {
		b.err = fmt.Errorf("copy %s: %w", name, err)
		return
	}
	b.messages = append(b.messages, netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(message(kind)), Flags: netlink.Request | flags}, Data: data,
	})
	b.names = append(b.names, name)
	if b.size += len(data); b.size > transaction && kind != newChain && kind != newTable {
		b.send()
	}
}

// elements adds what a set holds.
func (b *batch) elements(set object, messages []netlink.Message) {
	if b.err != nil {
		return
	}
	name := "the elements of set " + set.text(setTable) + " " + set.text(setName)
	all, err := elementsOf(set, messages)
	if err != nil {
		b.err = fmt.Errorf("copy %s: %w", name, err)
		return
	}
	for len(all) > 0 {
		n, size := 0, 0
		for n < len(all) && size < listSize {
			size += (len(all[n].Data) + 7) &^ 3
			n++
		}
		o := object{generic(set.fixed[0]), []netlink.Attribute{
			word(listTable, set.text(setTable)), word(listSet, set.text(setName)), within(listElements, all[:n]...),
		}}
		b.add(newElement, netlink.Create, o, name)
		all = all[n:]
	}
}

// send makes the transaction.
func (b *batch) send() {
	if b.err != nil || len(b.messages) == 0 {
		return
	}
	whole := append([]netlink.Message{edge(beginOfBatch)}, b.messages...)
	whole[len(whole)-1].Header.Flags |= netlink.Acknowledge
	sent, err := b.conn.SendMessages(append(whole, edge(endOfBatch)))
	if err == nil {
		// One answer is asked for; where something is refused, the first one says so.
		_, err = b.conn.Receive()
	}
	if err != nil {
		b.err = fmt.Errorf("copy %s: %w", b.culprit(sent, err), err)
	}
	b.messages, b.names, b.size = nil, nil, 0
}

// culprit names what was refused.
func (b *batch) culprit(sent []netlink.Message, err error) string {
	var refused *netlink.OpError
	if errors.As(err, &refused) && refused.Sequence != 0 {
		for i := range b.names {
			if i+1 < len(sent) && sent[i+1].Header.Sequence == refused.Sequence {
				return b.names[i]
			}
		}
	}
	return "the ruleset"
}

// edge is the first or the last message of a transaction.
func edge(kind int) netlink.Message {
	data := binary.BigEndian.AppendUint16([]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0}, unix.NFNL_SUBSYS_NFTABLES)
	return netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request}, Data: data}
}
