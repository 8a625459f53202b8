package replica

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/nft"
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
	if b.size += len(data); b.size > transaction && kind != unix.NFT_MSG_NEWCHAIN && kind != unix.NFT_MSG_NEWTABLE {
		b.send()
	}
}

// elements adds what a set holds.
func (b *batch) elements(set object, messages []netlink.Message) {
	if b.err != nil {
		return
	}
	name := "the elements of set " + set.text(unix.NFTA_SET_TABLE) + " " + set.text(unix.NFTA_SET_NAME)
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
			word(unix.NFTA_SET_ELEM_LIST_TABLE, set.text(unix.NFTA_SET_TABLE)), word(unix.NFTA_SET_ELEM_LIST_SET, set.text(unix.NFTA_SET_NAME)), within(unix.NFTA_SET_ELEM_LIST_ELEMENTS, all[:n]...),
		}}
		b.add(unix.NFT_MSG_NEWSETELEM, netlink.Create, o, name)
		all = all[n:]
	}
}

// send makes the transaction.
func (b *batch) send() {
	if b.err != nil || len(b.messages) == 0 {
		return
	}
	sent, err := nft.Transact(b.conn, b.messages)
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
