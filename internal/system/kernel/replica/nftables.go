package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/nft"
)

// From include/uapi/linux/netfilter/nf_tables.h; golang.org/x/sys/unix has not all of them.
const (
	tableUserData = 6 // NFTA_TABLE_USERDATA
	tableDormant  = 1 // not NFT_TABLE_F_OWNER, _PERSIST: no socket of the copy's owns one

	chainFlags, chainUserData = 10, 12 // NFTA_CHAIN_FLAGS, _USERDATA
	chainBase                 = 1      // not NFT_CHAIN_HW_OFFLOAD, _BINDING

	setConcat = 0x80 // NFT_SET_CONCAT

	flowtableFlags, flowtableCounter = 7, 2 // not NFT_FLOWTABLE_HW_OFFLOAD

	genericHeader = 4 // struct nfgenmsg
)

// setKinds are the attributes of a set that say what it is.
var setKinds = []uint16{unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME, unix.NFTA_SET_FLAGS, 4, unix.NFTA_SET_KEY_LEN, 6, 7, 8, 9, 11, 12, 13, 15, 17, 18}

// ruleset is all of nf_tables in one namespace.
type ruleset struct {
	tables, chains, objects, sets, flowtables, rules []object
	elements                                         map[string][]netlink.Message // of sets, by setKey
}

// Rules pairs the rules of a copy with those that they are copies of.
type Rules struct {
	// Chains are all chains, in the kernel's order.
	Chains []nft.Chain
	// original is the handle in the source, by place in the copy.
	original map[Place]uint64
}

// Place is one rule.
type Place struct {
	Family       uint8
	Table, Chain string
	Handle       uint64
}

// Original is the handle that a rule of the copy has in the source, 0 where it is no
// copy.
func (r *Rules) Original(p Place) uint64 { return r.original[p] }

// copyTries is how often a ruleset is read that others change meanwhile.
const copyTries = 10

// readRuleset reads the ruleset of the calling thread's namespace, as it was
// between two transactions.
func readRuleset() (*ruleset, error) {
	conn, err := dialNetfilter()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for range copyTries {
		before, err := nft.Generation()
		if err != nil {
			return nil, err
		}
		r, err := readOnce(conn)
		if err == nil {
			err = r.readElements(conn)
		}
		after, afterErr := nft.Generation()
		if afterErr != nil {
			return nil, afterErr
		}
		if before != after {
			continue
		}
		return r, err
	}
	return nil, fmt.Errorf("read the ruleset: %w", errChanged)
}

func dialNetfilter() (*netlink.Conn, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	_ = conn.SetWriteBuffer(16 << 20) // past the machine's limit, where the process may
	_ = conn.SetReadBuffer(4 << 20)
	_ = conn.SetOption(netlink.ExtendedAcknowledge, true)
	return conn, nil
}

func readOnce(conn *netlink.Conn) (*ruleset, error) {
	r := &ruleset{elements: map[string][]netlink.Message{}}
	for _, kind := range []struct {
		get  uint16
		into *[]object
		name string
	}{
		{unix.NFT_MSG_GETTABLE, &r.tables, "tables"},
		{unix.NFT_MSG_GETCHAIN, &r.chains, "chains"},
		{unix.NFT_MSG_GETOBJ, &r.objects, "objects"},
		{unix.NFT_MSG_GETSET, &r.sets, "sets"},
		{unix.NFT_MSG_GETFLOWTABLE, &r.flowtables, "flowtables"},
		{unix.NFT_MSG_GETRULE, &r.rules, "rules"},
	} {
		messages, err := dump(conn, message(kind.get), generic(unix.NFPROTO_UNSPEC))
		if kind.get == unix.NFT_MSG_GETFLOWTABLE && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT)) {
			continue // a kernel without flowtables
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.name, err)
		}
		for _, m := range messages {
			o, err := parse(m, genericHeader)
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", kind.name, err)
			}
			*kind.into = append(*kind.into, o)
		}
	}
	return r, nil
}

func (r *ruleset) readElements(conn *netlink.Conn) error {
	for _, s := range r.sets {
		request := object{generic(s.fixed[0]), []netlink.Attribute{word(unix.NFTA_SET_ELEM_LIST_TABLE, s.text(unix.NFTA_SET_TABLE)), word(unix.NFTA_SET_ELEM_LIST_SET, s.text(unix.NFTA_SET_NAME))}}
		data, err := request.data()
		if err != nil {
			return err
		}
		if r.elements[s.setKey()], err = dump(conn, message(unix.NFT_MSG_GETSETELEM), data); err != nil {
			return fmt.Errorf("list the elements of set %s: %w", s.text(unix.NFTA_SET_NAME), err)
		}
	}
	return nil
}

func (o object) setKey() string {
	return string(o.fixed[:1]) + o.text(unix.NFTA_SET_TABLE) + "\x00" + o.text(unix.NFTA_SET_NAME)
}

func message(kind uint16) uint16 { return unix.NFNL_SUBSYS_NFTABLES<<8 | kind }

func generic(family uint8) []byte { return []byte{family, unix.NFNETLINK_V0, 0, 0} }

// write makes the ruleset in the calling thread's namespace, which has none.
func (r *ruleset) write() error {
	conn, err := dialNetfilter()
	if err != nil {
		return err
	}
	defer conn.Close()
	b := batch{conn: conn}
	for _, o := range r.tables {
		o.keep(unix.NFTA_TABLE_NAME, unix.NFTA_TABLE_FLAGS, tableUserData)
		o.mask(unix.NFTA_TABLE_FLAGS, tableDormant)
		b.add(unix.NFT_MSG_NEWTABLE, netlink.Create, o, "table "+o.text(unix.NFTA_TABLE_NAME))
	}
	for _, o := range r.chains {
		o.keep(unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME, unix.NFTA_CHAIN_HOOK, unix.NFTA_CHAIN_POLICY, unix.NFTA_CHAIN_TYPE, chainFlags, chainUserData)
		o.mask(chainFlags, chainBase)
		b.add(unix.NFT_MSG_NEWCHAIN, netlink.Create, o, "chain "+o.text(unix.NFTA_CHAIN_TABLE)+" "+o.text(unix.NFTA_CHAIN_NAME))
	}
	for _, o := range r.objects {
		o.keep(1, 2, 3, 4, 8)
		b.add(unix.NFT_MSG_NEWOBJ, netlink.Create, o, "object "+o.text(1)+" "+o.text(2))
	}
	for i, o := range r.sets {
		o.keep(setKinds...)
		// As an ordinary set it keeps its name and stays without a rule.
		o.mask(unix.NFTA_SET_FLAGS, ^uint32(unix.NFT_SET_ANONYMOUS))
		o.set(unix.NFTA_SET_ID, binary.BigEndian.AppendUint32(nil, uint32(i)+1)) //nolint:gosec // there are not so many
		b.add(unix.NFT_MSG_NEWSET, netlink.Create, o, "set "+o.text(unix.NFTA_SET_TABLE)+" "+o.text(unix.NFTA_SET_NAME))
	}
	for _, o := range r.flowtables {
		o.keep(1, 2, 3, flowtableFlags)
		o.mask(flowtableFlags, flowtableCounter)
		b.add(unix.NFT_MSG_NEWFLOWTABLE, netlink.Create, o, "flowtable "+o.text(1)+" "+o.text(2))
	}
	b.send()
	for _, s := range r.sets {
		b.elements(s, r.elements[s.setKey()])
	}
	for _, o := range r.rules {
		o.keep(unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN, unix.NFTA_RULE_EXPRESSIONS, unix.NFTA_RULE_USERDATA)
		takeable(&o)
		if c, needed := compat(o); needed {
			o.attributes = append(o.attributes, c)
		}
		b.add(unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append, o, "rule of chain "+o.text(unix.NFTA_RULE_TABLE)+" "+o.text(unix.NFTA_RULE_CHAIN))
	}
	b.send()
	return b.err
}

// pair finds for every rule of the calling thread's namespace, which was made from this
// ruleset, the rule that it is a copy of: they come in the same order in each chain.
func (r *ruleset) pair() (*Rules, error) {
	conn, err := dialNetfilter()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	made, err := readOnce(conn)
	if err != nil {
		return nil, err
	}
	chains, err := nft.AllChains()
	if err != nil {
		return nil, err
	}
	out := &Rules{Chains: chains, original: map[Place]uint64{}}
	handles := map[Place][]uint64{}
	for _, o := range r.rules {
		p := o.place()
		handle := p.Handle
		p.Handle = 0
		handles[p] = append(handles[p], handle)
	}
	for _, o := range made.rules {
		p := o.place()
		chain := p
		chain.Handle = 0
		if rest := handles[chain]; len(rest) > 0 {
			out.original[p], handles[chain] = rest[0], rest[1:]
		}
	}
	return out, nil
}

func (o object) place() Place {
	p := Place{Family: o.fixed[0], Table: o.text(unix.NFTA_RULE_TABLE), Chain: o.text(unix.NFTA_RULE_CHAIN)}
	if data, _ := o.bytes(unix.NFTA_RULE_HANDLE); len(data) == 8 {
		p.Handle = binary.BigEndian.Uint64(data)
	}
	return p
}

func (o object) number(kind uint16) uint32 {
	if data, _ := o.bytes(kind); len(data) == 4 {
		return binary.BigEndian.Uint32(data)
	}
	return 0
}

// elementsOf takes the elements of a dump apart. Those of a set with intervals come
// from kernels that keep them in a tree last to first; they are given back first to last,
// as nft gives them to every kernel.
func elementsOf(set object, messages []netlink.Message) ([]netlink.Attribute, error) {
	var all []netlink.Attribute
	for _, m := range messages {
		o, err := parse(m, genericHeader)
		if err != nil {
			return nil, err
		}
		list, _ := o.bytes(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		elements, err := netlink.UnmarshalAttributes(list)
		if err != nil {
			return nil, err
		}
		all = append(all, elements...)
	}
	if n := len(all); n > 1 && set.number(unix.NFTA_SET_FLAGS)&(unix.NFT_SET_INTERVAL|setConcat) == unix.NFT_SET_INTERVAL && bytes.Compare(keyOf(all[0]), keyOf(all[n-1])) > 0 {
		slices.Reverse(all)
	}
	return all, nil
}

func keyOf(element netlink.Attribute) []byte {
	attributes, _ := netlink.UnmarshalAttributes(element.Data) // of a broken one nothing is known
	key, _ := object{attributes: attributes}.nested(unix.NFTA_SET_ELEM_KEY)
	value, _ := key.bytes(unix.NFTA_DATA_VALUE)
	return value
}
