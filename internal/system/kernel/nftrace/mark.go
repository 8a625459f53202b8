package nftrace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/nft"
)

// ErrMarked says that a table of the name is there: packets are marked already.
var ErrMarked = errors.New("packets of this network namespace are being traced already")

// ErrNoOwner is the error of kernels before Linux 5.12: a table would stay behind a
// process that is killed.
var ErrNoOwner = errors.New("this kernel does not take a table away with the process that made it (Linux 5.12 does)")

// Chains of the table of Mark, by the hook that they are at.
const (
	Arriving = "prerouting"
	Sending  = "output"
)

const (
	tableOwner = 2       // NFT_TABLE_F_OWNER
	before     = 1 << 31 // the lowest priority: among equals, who comes last is asked first
	burst      = 5
)

// Marking is a table that marks packets for the trace, until it is closed. It is used in the
// network namespace where it was made.
type Marking struct {
	conn   *netlink.Conn
	table  string
	family uint8
	rate   uint64
}

// Mark makes a table of family inet in the network namespace of the calling thread, which
// marks packets of a family (NFPROTO_IPV4, NFPROTO_IPV6; NFPROTO_INET is both) before
// every other chain: of those that arrive so many a second, and of those that local
// sockets send. The table is the socket's (NFT_TABLE_F_OWNER): nobody else can change it,
// no "flush ruleset" either, and the kernel takes it away with the process, however that
// ends. The error is ErrMarked, ErrNoOwner or fs.ErrPermission.
func Mark(table string, family uint8, rate uint64) (*Marking, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	m := &Marking{conn, table, family, rate}
	made := message(unix.NFT_MSG_NEWTABLE, netlink.Create|netlink.Excl, tree{{unix.NFTA_TABLE_NAME, table}, {unix.NFTA_TABLE_FLAGS, uint32(tableOwner)}})
	if err = m.transact(append([]netlink.Message{made}, m.chains()...)); err == nil {
		return m, nil
	}
	switch all, _ := nft.Tables(); {
	case slices.ContainsFunc(all, func(t nft.Named) bool { return t.Name == table }):
		err = ErrMarked
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP):
		err = ErrNoOwner
	}
	return nil, errors.Join(fmt.Errorf("mark packets for the trace: %w", err), conn.Close())
}

// Close takes the table away.
func (m *Marking) Close() error { return m.conn.Close() }

// Rest has no packet marked until Resume. The table stays.
func (m *Marking) Rest() error {
	var batch []netlink.Message
	for _, name := range []string{Arriving, Sending} {
		batch = append(batch, message(unix.NFT_MSG_DELCHAIN, 0, tree{{unix.NFTA_CHAIN_TABLE, m.table}, {unix.NFTA_CHAIN_NAME, name}}))
	}
	return m.transact(batch)
}

// Resume has packets marked again.
func (m *Marking) Resume() error { return m.transact(m.chains()) }

func (m *Marking) transact(batch []netlink.Message) error {
	return nft.Here().Count(nft.Generation, func() error {
		_, err := nft.Transact(m.conn, batch)
		return err
	})
}

// chains make those of the table, with their rules.
func (m *Marking) chains() (batch []netlink.Message) {
	for _, c := range []struct {
		name string
		hook uint32
	}{{Arriving, unix.NF_INET_PRE_ROUTING}, {Sending, unix.NF_INET_LOCAL_OUT}} {
		batch = append(batch, message(unix.NFT_MSG_NEWCHAIN, netlink.Create, tree{
			{unix.NFTA_CHAIN_TABLE, m.table},
			{unix.NFTA_CHAIN_NAME, c.name},
			{unix.NFTA_CHAIN_TYPE, "filter"},
			{unix.NFTA_CHAIN_HOOK, tree{{unix.NFTA_HOOK_HOOKNUM, c.hook}, {unix.NFTA_HOOK_PRIORITY, uint32(before)}}},
		}), message(unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append, tree{
			{unix.NFTA_RULE_TABLE, m.table},
			{unix.NFTA_RULE_CHAIN, c.name},
			{unix.NFTA_RULE_EXPRESSIONS, expressions(m.family, m.rate)},
		}))
	}
	return batch
}

// message is one of a transaction, of family inet.
func message(kind int, flags netlink.HeaderFlags, attributes tree) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request | flags},
		Data:   append([]byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}, attributes.encode()...),
	}
}

// expressions are those of "meta nfproto FAMILY limit rate RATE/second meta nftrace set 1".
func expressions(family uint8, rate uint64) (list tree) {
	add := func(name string, data tree) {
		list = append(list, attribute{unix.NFTA_LIST_ELEM, tree{{unix.NFTA_EXPR_NAME, name}, {unix.NFTA_EXPR_DATA, data}}})
	}
	register := uint32(unix.NFT_REG_1)
	if family != unix.NFPROTO_INET {
		add("meta", tree{{unix.NFTA_META_KEY, uint32(unix.NFT_META_NFPROTO)}, {unix.NFTA_META_DREG, register}})
		add("cmp", tree{{unix.NFTA_CMP_SREG, register}, {unix.NFTA_CMP_OP, uint32(unix.NFT_CMP_EQ)}, {unix.NFTA_CMP_DATA, tree{{unix.NFTA_DATA_VALUE, []byte{family}}}}})
	}
	add("limit", tree{{unix.NFTA_LIMIT_RATE, rate}, {unix.NFTA_LIMIT_UNIT, uint64(1)}, {unix.NFTA_LIMIT_BURST, uint32(burst)}, {unix.NFTA_LIMIT_TYPE, uint32(unix.NFT_LIMIT_PKTS)}})
	add("immediate", tree{{unix.NFTA_IMMEDIATE_DREG, register}, {unix.NFTA_IMMEDIATE_DATA, tree{{unix.NFTA_DATA_VALUE, []byte{1}}}}})
	add("meta", tree{{unix.NFTA_META_KEY, uint32(unix.NFT_META_NFTRACE)}, {unix.NFTA_META_SREG, register}})
	return list
}

// tree is a list of attributes as nf_tables has them: numbers in network order.
type tree []attribute

type attribute struct {
	kind  uint16
	value any // string, []byte, uint32, uint64, tree
}

func (t tree) encode() (out []byte) {
	for _, a := range t {
		var data []byte
		kind := a.kind
		switch v := a.value.(type) {
		case string:
			data = append([]byte(v), 0)
		case []byte:
			data = v
		case uint32:
			data = binary.BigEndian.AppendUint32(nil, v)
		case uint64:
			data = binary.BigEndian.AppendUint64(nil, v)
		case tree:
			data, kind = v.encode(), kind|unix.NLA_F_NESTED
		}
		out = binary.NativeEndian.AppendUint16(out, uint16(unix.SizeofNlAttr+len(data))) //nolint:gosec // some hundred bytes
		out = append(binary.NativeEndian.AppendUint16(out, kind), data...)
		for len(out)%unix.NLA_ALIGNTO != 0 {
			out = append(out, 0)
		}
	}
	return out
}
