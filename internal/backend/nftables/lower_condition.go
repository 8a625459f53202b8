package nftables

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

// loopback is the name of the device that every namespace is born with.
const loopback = "lo"

func (m *matcher) interfaces(field string, c *program.Condition) (ways, error) {
	if slices.Contains(c.Names, "*") {
		return turned(!c.Not), nil
	}
	if followed, rest := splitFollowed(c.Names); len(followed) > 0 {
		return m.followed(field, c, followed, rest)
	}
	for _, n := range c.Names {
		if !validInterface(n) {
			return never, fmt.Errorf("%q is not the name of an interface", n)
		}
	}
	if len(c.Names) == 0 {
		return turned(c.Not), nil
	}
	if slices.Equal(c.Names, []string{loopback}) {
		// Of its index, which is 1 in every namespace (register_netdevice of
		// loopback_net_init checks it): comparing a number takes 10 ns where
		// comparing a name takes 38.
		field = strings.TrimSuffix(field, "name")
	}
	return one(Statement{Kind: Match, Field: field, Op: operator(c.Not), Values: normalValues(c.Names)}), nil
}

// splitFollowed parts the names that the host decides on, as ids of sets, from those
// that stand for themselves.
func splitFollowed(names []string) (followed, rest []string) {
	for _, n := range names {
		if set, is := program.FollowedName(n); is {
			followed = append(followed, set)
		} else {
			rest = append(rest, n)
		}
	}
	return followed, rest
}

// followed asks for interfaces in sets that are edited in place, and for the rest
// beside them.
func (m *matcher) followed(field string, c *program.Condition, sets, rest []string) (ways, error) {
	var all []Statement
	for _, id := range sets {
		p := m.l.parts[id]
		if p == nil || len(p.byFam[0]) != 1 {
			return never, fmt.Errorf("no set %s", id)
		}
		all = append(all, Statement{Kind: Match, Field: field, Op: operator(c.Not), Set: p.byFam[0][0].Name})
	}
	if len(rest) > 0 {
		plain, err := m.interfaces(field, &program.Condition{Field: c.Field, Not: c.Not, Names: rest})
		if err != nil {
			return never, err
		}
		all = append(all, plain[0]...)
	}
	if c.Not {
		return ways{all}, nil
	}
	var out ways
	for _, s := range all {
		out = append(out, []Statement{s})
	}
	return out, nil
}

// numbers asks a field of nft for numbers up to limit.
func (m *matcher) numbers(field string, c *program.Condition, limit uint64) ways {
	merged := program.MergeNumbers(c.Numbers)
	switch {
	case len(merged) == 0:
		return turned(c.Not)
	case len(merged) == 1 && merged[0].From == 0 && merged[0].To >= limit:
		return turned(!c.Not)
	}
	return one(Statement{Kind: Match, Field: field, Op: operator(c.Not), Values: numberValues(merged)})
}

// before asks for the time. The kernel has it in nanoseconds, so that the last second of
// a range is no value of it: seconds are asked for by order alone.
func before(c *program.Condition) (ways, error) {
	merged := program.MergeNumbers(c.Numbers)
	if len(merged) != 1 || merged[0].From != 0 || merged[0].To >= math.MaxUint32 {
		return never, fmt.Errorf("times other than an end")
	}
	op := "<"
	if c.Not {
		op = ">="
	}
	return one(Statement{Kind: Match, Field: timeField, Op: op, Values: []string{strconv.FormatUint(merged[0].To+1, 10)}}), nil
}

func (m *matcher) masked(c *program.Condition) ways {
	field := plainFields[c.Field]
	full := uint64(math.MaxUint32)
	if c.Field == program.TCPFlags {
		full = math.MaxUint8
	}
	if inWord(c) {
		word := *c
		word.Mask <<= flagsShift
		word.Numbers = []program.NumberRange{{From: c.Numbers[0].From << flagsShift, To: c.Numbers[0].To << flagsShift}}
		c, field, full = &word, flagsWord, math.MaxUint32
	}
	out := m.numbers(field, c, math.MaxUint64)
	if len(out) == 1 && len(out[0]) == 1 && c.Mask != 0 && c.Mask != full {
		out[0][0].Mask = strconv.FormatUint(c.Mask, 10)
	}
	return out
}

// flagsWord are the four bytes of a TCP header that the flags lie in, so far from their
// end. The kernel masks four bytes in 56 instructions less than one on Linux 6.12
// (nft_bitwise_init of net/netfilter/nft_bitwise.c). A packet that ends between the
// flags and the end of the window has a field less to ask then; nobody accepts it.
const (
	flagsWord  = "@th,96,32"
	flagsShift = 16
)

// inWord says whether flags are asked with those bytes: some that lie side by side, for
// one value. Of others nft 1.1 lists where they begin and how many they are.
func inWord(c *program.Condition) bool {
	beside := bits.Len64(c.Mask)-bits.TrailingZeros64(c.Mask) == bits.OnesCount64(c.Mask)
	return c.Field == program.TCPFlags && c.Mask != 0 && c.Mask < math.MaxUint8 && beside && len(c.Numbers) == 1 && c.Numbers[0].From == c.Numbers[0].To
}

func (m *matcher) named(c *program.Condition) (ways, error) {
	if s, is := ofHandshake(c); is {
		return one(s), nil
	}
	values := make([]string, 0, len(c.Names))
	for _, n := range c.Names {
		v, known := names[c.Field][n]
		if !known {
			return never, fmt.Errorf("condition on %s: unknown name %q", c.Field, n)
		}
		values = append(values, v)
	}
	s := Statement{Kind: Match, Field: plainFields[c.Field], Op: operator(c.Not), Values: separate(values)}
	switch {
	case c.Field == program.Status && c.Not:
		s.Op = "!" // bits, of which a connection has several at once
	case c.Field == program.Status, c.Field == program.State && !c.Not && len(values) > 1:
		// A packet has one state (nft_ct_get_eval of net/netfilter/nft_ct.c loads one
		// bit): of several a mask is asked faster than a set, and one alone is compared.
		s.Op = "in"
	}
	return one(s), nil
}

// ofHandshake is a condition on what the kernel's own status of a connection does not
// say: a bit of its label, or a socket. Each is there or not, and what is asked of it
// beside that always holds.
func ofHandshake(c *program.Condition) (Statement, bool) {
	if c.Field != program.Status || c.Not || len(c.Names) != 1 {
		return Statement{}, false
	}
	if bit, is := program.LabelBit(c.Names[0]); is {
		return Statement{Kind: Match, Field: "ct label", Op: "in", Values: []string{strconv.Itoa(int(bit))}}, true
	}
	if c.Names[0] == program.Closed {
		return Statement{Kind: Match, Field: "ct expiration", Op: "<", Values: []string{closedBefore}}, true
	}
	field, is := socketFields[c.Names[0]]
	return Statement{Kind: Match, Field: field, Op: ">=", Values: []string{"0"}}, is
}

// socketFields are fields that a packet has where its socket is known. nft_socket
// gives the mark of a full socket alone; the class of the control group is that of
// skb_to_full_sk (nft_meta_get_eval_cgroup), which is there as soon as the handshake
// is completed, before a program has accepted the connection.
var socketFields = map[string]string{program.Socket: "socket mark", program.Demultiplexed: "meta cgroup"}

// closedBefore is after how many seconds at the most what a reset has closed is gone.
const closedBefore = "11"

// separate sorts numbers that stand for names, which are never merged.
func separate(values []string) []string {
	out := slices.Clone(values)
	sorting.By(out, func(a, b string) int {
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		return x - y
	})
	return slices.Compact(out)
}

func (m *matcher) protocol(c *program.Condition) (ways, error) {
	if !c.Not {
		if len(m.protocols) == 0 {
			return never, nil
		}
		if n, is := m.single(); is && m.implied(n) && !m.asksConnection() || m.translated() {
			return always(), nil
		}
		c = &program.Condition{Numbers: m.protocols}
	} else {
		c = &program.Condition{Numbers: m.ofFamily(c.Numbers), Not: true}
	}
	return m.numbers("meta l4proto", c, 255), nil
}

// asksConnection says whether the rule asks connection tracking, which takes longer
// than the protocol: what nft makes of a port would be asked behind it.
func (m *matcher) asksConnection() bool {
	return slices.ContainsFunc(m.rule.Match, func(c program.Condition) bool {
		return c.Field == program.State || c.Field == program.Direction || c.Field == program.Status
	})
}

// implied says whether another condition of the rule looks into the header of
// the protocol, of which nft makes a condition on the protocol by itself.
func (m *matcher) implied(protocol uint64) bool {
	return slices.ContainsFunc(m.rule.Match, func(c program.Condition) bool {
		switch c.Field {
		case program.Port, program.SourcePort:
			return portHeaders[protocol] != "" && c.Set == "" && !everyPort(c.Numbers)
		case program.ICMPType, program.ICMPCode:
			return protocol == icmp && len(c.Numbers) > 0
		case program.ICMPv6Type, program.ICMPv6Code:
			return protocol == icmpv6 && len(c.Numbers) > 0
		case program.TCPFlags:
			return protocol == tcp && !inWord(&c)
		}
		return false
	})
}

// translated says whether the rule asks for ports before translation, which
// asks for the protocol by itself.
func (m *matcher) translated() bool {
	return slices.ContainsFunc(m.rule.Match, func(c program.Condition) bool {
		return c.Field == program.OriginalPort && !everyPort(c.Numbers)
	})
}

func everyPort(ranges []program.NumberRange) bool {
	merged := program.MergeNumbers(ranges)
	return len(merged) == 0 || len(merged) == 1 && merged[0].From == 0 && merged[0].To >= math.MaxUint16
}

func (m *matcher) port(c *program.Condition) (ways, error) {
	if m.protocols == nil {
		return never, fmt.Errorf("a port without a protocol")
	}
	header := "th"
	if n, is := m.single(); is && portHeaders[n] != "" {
		header = portHeaders[n]
	}
	field := header + " dport"
	if c.Field == program.SourcePort {
		field = header + " sport"
	}
	return m.numbers(field, c, math.MaxUint16), nil
}

// originalPort asks connection tracking. nft 1.0.6 knows what such a port is
// only after one protocol, and prints a list of them as "invalid type"; so each
// protocol and range is a rule of its own.
func (m *matcher) originalPort(c *program.Condition) (ways, error) {
	if m.protocols == nil {
		return never, fmt.Errorf("a port without a protocol")
	}
	ranges := program.MergeNumbers(c.Numbers)
	if everyPort(ranges) {
		return turned(c.Not != (len(ranges) > 0)), nil
	}
	out := never
	for _, p := range m.protocols {
		if p.To-p.From > 16 {
			return never, fmt.Errorf("a port before translation, over %d protocols", p.To-p.From+1)
		}
		for n := p.From; n <= p.To; n++ {
			way := []Statement{{Kind: Match, Field: "meta l4proto", Op: "==", Values: []string{strconv.FormatUint(n, 10)}}}
			if c.Not {
				for _, r := range ranges {
					way = append(way, Statement{Kind: Match, Field: "ct original proto-dst", Op: "!=", Values: []string{numberValue(r)}})
				}
				out = append(out, way)
				continue
			}
			for _, r := range ranges {
				out = append(out, append(slices.Clone(way), Statement{Kind: Match, Field: "ct original proto-dst", Op: "==", Values: []string{numberValue(r)}}))
			}
		}
	}
	return out, nil
}

func (m *matcher) fragment(c *program.Condition) (ways, error) {
	want := holds(c.Numbers, 1) != c.Not
	if holds(c.Numbers, 0) == holds(c.Numbers, 1) {
		return turned(holds(c.Numbers, 0) == c.Not), nil
	}
	s := Statement{Kind: Match, Field: "ip frag-off", Mask: "8191", Op: "==", Values: []string{"0"}}
	if m.family == 6 {
		s = Statement{Kind: Match, Field: "frag frag-off", Op: "==", Values: []string{"0"}}
	}
	if want {
		s.Op = "!="
	} else if m.family == 6 {
		// Without the header the field is not there, and no condition on it holds.
		absent := Statement{Kind: Match, Field: "exthdr frag", Op: "==", Values: []string{"missing"}}
		return ways{{absent}, {s}}, nil
	}
	return one(s), nil
}

// extensions are the headers that nft can ask for, by number.
var extensions = map[uint64]string{0: "hbh", 43: "rt", 44: "frag", 60: "dst", 135: "mh"}

func (m *matcher) extension(c *program.Condition) (ways, error) {
	out := never
	var absent []Statement
	for _, r := range program.MergeNumbers(c.Numbers) {
		for n := r.From; n <= r.To; n++ {
			header := extensions[n]
			if header == "" {
				return never, fmt.Errorf("nft cannot match the IPv6 extension header %d", n)
			}
			out = append(out, []Statement{{Kind: Match, Field: "exthdr " + header, Op: "==", Values: []string{"exists"}}})
			absent = append(absent, Statement{Kind: Match, Field: "exthdr " + header, Op: "==", Values: []string{"missing"}})
		}
	}
	if c.Not {
		return ways{absent}, nil
	}
	return out, nil
}

// fieldOf is nft's name of an address, port or other part of a key.
func (m *matcher) fieldOf(f program.Field) (string, error) {
	if word, is := addressFields[f]; is {
		return fmt.Sprintf(word, ipOf(m.family)), nil
	}
	if word, is := keyFields[f]; is {
		return word, nil
	}
	return "", fmt.Errorf("%s cannot be part of a set's key", f)
}

// inlineAddresses is how many ranges are in a rule itself; more get a set.
const inlineAddresses = 32

// inlineSet is the name of sets that rules get which list many addresses.
const inlineSet = "addresses"

func (m *matcher) addresses(c *program.Condition) (ways, error) {
	set, err := addressSet(c.Addresses)
	if err != nil {
		return never, err
	}
	mine := set.Only6()
	if m.family == 4 {
		mine = set.Only4()
	}
	field, err := m.fieldOf(c.Field)
	if err != nil {
		return never, err
	}
	return m.addressWays(field, c, mine), nil
}

func (m *matcher) addressWays(field string, c *program.Condition, mine addrset.Set) ways {
	switch {
	case mine.IsEmpty():
		return turned(c.Not)
	case mine.ComplementIn(addrset.Family(m.family)).IsEmpty():
		return turned(!c.Not)
	}
	s := Statement{Kind: Match, Field: field, Op: operator(c.Not)}
	if mine.Len4()+mine.Len6() > inlineAddresses {
		anonymous := &program.Set{ID: inlineSet, Life: program.Static, Origin: m.rule.Origin}
		k := static(anonymous, m.family, inlineSet, Elements{Addresses: mine}, false)
		if m.l.tree.set(k.Name) == nil {
			m.l.tree.Sets = append(m.l.tree.Sets, k)
		}
		s.Set = k.Name
		return one(s)
	}
	s.Values = addressValues(mine)
	return one(s)
}

func (m *matcher) inSet(c *program.Condition) (ways, error) {
	p := m.l.parts[c.Set]
	if p == nil {
		return never, fmt.Errorf("no set %s", c.Set)
	}
	keys := c.SetKey
	if len(keys) == 0 {
		keys = []program.Field{c.Field}
	}
	if len(keys) != len(p.set.Key) {
		return never, fmt.Errorf("set %s has %d keys but is looked up with %d", c.Set, len(p.set.Key), len(keys))
	}
	fields := make([]string, len(keys))
	family := 0
	for i, k := range keys {
		f, err := m.fieldOf(k)
		if err != nil {
			return never, err
		}
		if isAddress(k) {
			family = m.family
		}
		fields[i] = f
	}
	if x := p.laid[family]; x != nil && len(keys) == 1 {
		if networkOffset[family][keys[0]] != 0 {
			return one(laidStatement(x, keys[0], c.Not)), nil
		}
		m.l.plain(laidStatement(x, keys[0], c.Not), family)
	}
	var in ways
	var out []Statement
	for _, part := range p.byFam[family] {
		s := Statement{Kind: Match, Field: strings.Join(fields, " . "), Op: operator(c.Not), Set: part.Name}
		switch network, is := part.network(); {
		case is:
			s.Set, s.Values = "", []string{network}
		case p.masked:
			s.Mask = keyMask(c.Set, family)
		}
		in = append(in, []Statement{s})
		out = append(out, s)
	}
	if c.Not {
		return ways{out}, nil
	}
	return in, nil
}
