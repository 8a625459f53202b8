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

// From include/uapi/linux/netfilter/nf_tables.h.
const (
	newTable, getTable         = 0, 1
	newChain, getChain         = 3, 4
	newRule, getRule           = 6, 7
	newSet, getSet             = 9, 10
	newElement, getElement     = 12, 13
	newObject, getObject       = 18, 19
	newFlowtable, getFlowtable = 22, 23

	beginOfBatch, endOfBatch = 16, 17 // NFNL_MSG_BATCH_BEGIN, _END

	tableName, tableFlags, tableUserData = 1, 2, 6
	tableDormant                         = 1 // not NFT_TABLE_F_OWNER, _PERSIST: no socket of the copy's owns one

	chainTable, chainName, chainHook, chainPolicy, chainType, chainFlags, chainUserData = 1, 3, 4, 5, 7, 10, 12
	chainBase                                                                           = 1 // not NFT_CHAIN_HW_OFFLOAD, _BINDING
	hookNumber, hookPriority                                                            = 1, 2

	setTable, setName, setFlags, setID, setKeyLength = 1, 2, 3, 10, 5
	setAnonymous, setInterval, setConcat             = 1, 4, 0x80

	listTable, listSet, listElements = 1, 2, 3 // NFTA_SET_ELEM_LIST_*
	listElem                         = 1       // NFTA_LIST_ELEM
	elementKey                       = 1       // NFTA_SET_ELEM_KEY

	ruleTable, ruleChain, ruleHandle, ruleExpressions, ruleCompat, ruleUserData = 1, 2, 3, 4, 5, 7

	flowtableFlags, flowtableCounter = 7, 2 // not NFT_FLOWTABLE_HW_OFFLOAD

	genericHeader = 4 // struct nfgenmsg
)

// setKinds are the attributes of a set that say what it is.
var setKinds = []uint16{setTable, setName, setFlags, 4, setKeyLength, 6, 7, 8, 9, 11, 12, 13, 15, 17, 18}

// ruleset is all of nf_tables in one namespace.
type ruleset struct {
	tables, chains, objects, sets, flowtables, rules []object
	elements                                         map[string][]netlink.Message // of sets, by setKey
}

// Chain is one chain of a ruleset.
type Chain struct {
	Family   uint8 // NFPROTO_*
	Table    string
	Name     string
	Base     bool
	NAT      bool   // of type nat
	Hook     uint32 // of a base chain: NF_INET_*, NF_NETDEV_* by family
	Priority int32
}

// Rules pairs the rules of a copy with those that they are copies of.
type Rules struct {
	// Chains are all chains, in the kernel's order.
	Chains []Chain
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
		{getTable, &r.tables, "tables"},
		{getChain, &r.chains, "chains"},
		{getObject, &r.objects, "objects"},
		{getSet, &r.sets, "sets"},
		{getFlowtable, &r.flowtables, "flowtables"},
		{getRule, &r.rules, "rules"},
	} {
		messages, err := dump(conn, message(kind.get), generic(unix.NFPROTO_UNSPEC))
		if kind.get == getFlowtable && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT)) {
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
		request := object{generic(s.fixed[0]), []netlink.Attribute{word(listTable, s.text(setTable)), word(listSet, s.text(setName))}}
		data, err := request.data()
		if err != nil {
			return err
		}
		if r.elements[s.setKey()], err = dump(conn, message(getElement), data); err != nil {
			return fmt.Errorf("list the elements of set %s: %w", s.text(setName), err)
		}
	}
	return nil
}

func (o object) setKey() string {
	return string(o.fixed[:1]) + o.text(setTable) + "\x00" + o.text(setName)
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
		o.keep(tableName, tableFlags, tableUserData)
		o.mask(tableFlags, tableDormant)
		b.add(newTable, netlink.Create, o, "table "+o.text(tableName))
	}
	for _, o := range r.chains {
		o.keep(chainTable, chainName, chainHook, chainPolicy, chainType, chainFlags, chainUserData)
		o.mask(chainFlags, chainBase)
		b.add(newChain, netlink.Create, o, "chain "+o.text(chainTable)+" "+o.text(chainName))
	}
	for _, o := range r.objects {
		o.keep(1, 2, 3, 4, 8)
		b.add(newObject, netlink.Create, o, "object "+o.text(1)+" "+o.text(2))
	}
	for i, o := range r.sets {
		o.keep(setKinds...)
		// As an ordinary set it keeps its name and stays without a rule.
		o.mask(setFlags, ^uint32(setAnonymous))
		o.set(setID, binary.BigEndian.AppendUint32(nil, uint32(i)+1)) //nolint:gosec // there are not so many
		b.add(newSet, netlink.Create, o, "set "+o.text(setTable)+" "+o.text(setName))
	}
	for _, o := range r.flowtables {
		o.keep(1, 2, 3, flowtableFlags)
		o.mask(flowtableFlags, flowtableCounter)
		b.add(newFlowtable, netlink.Create, o, "flowtable "+o.text(1)+" "+o.text(2))
	}
	b.send()
	for _, s := range r.sets {
		b.elements(s, r.elements[s.setKey()])
	}
	for _, o := range r.rules {
		o.keep(ruleTable, ruleChain, ruleExpressions, ruleUserData)
		takeable(&o)
		if c, needed := compat(o); needed {
			o.attributes = append(o.attributes, c)
		}
		b.add(newRule, netlink.Create|netlink.Append, o, "rule of chain "+o.text(ruleTable)+" "+o.text(ruleChain))
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
	out := &Rules{original: map[Place]uint64{}}
	for _, c := range made.chains {
		chain := Chain{Family: c.fixed[0], Table: c.text(chainTable), Name: c.text(chainName)}
		if hook, is := c.bytes(chainHook); is {
			chain.Base, chain.NAT = true, c.text(chainType) == "nat"
			inner, _ := netlink.UnmarshalAttributes(hook) // what is not read stays zero
			h := object{attributes: inner}
			chain.Hook = h.number(hookNumber)
			chain.Priority = int32(h.number(hookPriority)) //nolint:gosec // the kernel's own sign
		}
		out.Chains = append(out.Chains, chain)
	}
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
	p := Place{Family: o.fixed[0], Table: o.text(ruleTable), Chain: o.text(ruleChain)}
	if data, _ := o.bytes(ruleHandle); len(data) == 8 {
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
		list, _ := o.bytes(listElements)
		elements, err := netlink.UnmarshalAttributes(list)
		if err != nil {
			return nil, err
		}
		all = append(all, elements...)
	}
	if n := len(all); n > 1 && set.number(setFlags)&(setInterval|setConcat) == setInterval && bytes.Compare(keyOf(all[0]), keyOf(all[n-1])) > 0 {
		slices.Reverse(all)
	}
	return all, nil
}

func keyOf(element netlink.Attribute) []byte {
	attributes, _ := netlink.UnmarshalAttributes(element.Data) // of a broken one nothing is known
	key, _ := object{attributes: attributes}.nested(elementKey)
	value, _ := key.bytes(dataValue)
	return value
}
