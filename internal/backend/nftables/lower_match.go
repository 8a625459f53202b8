package nftables

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

// ways are alternatives, each a list of statements that hold together. No way
// at all never matches, one empty way always does.
type ways [][]Statement

// always is rebuilt each time, since ways are built upon in place.
func always() ways { return ways{nil} }

var never ways

func (w ways) and(o ways) ways {
	out := make(ways, 0, len(w)*len(o))
	for _, a := range w {
		for _, b := range o {
			out = append(out, slices.Concat(a, b))
		}
	}
	return out
}

func one(s Statement) ways { return ways{{s}} }

// Protocol numbers, from IANA.
const (
	icmp   = 1
	tcp    = 6
	udp    = 17
	icmpv6 = 58
)

// portHeaders are the protocols whose ports nft knows by name.
var portHeaders = map[uint64]string{tcp: "tcp", udp: "udp", 132: "sctp", 33: "dccp", 136: "udplite"}

// Values of meta nfproto, from include/uapi/linux/netfilter.h.
var nfproto = map[int]string{4: "2", 6: "10"}

// bits and numbers of names, from the headers named beside them.
var names = map[program.Field]map[string]string{
	// nft's own numbering of NF_CT_STATE_BIT, include/uapi/linux/netfilter/nf_conntrack_common.h
	program.State:           {"invalid": "1", "established": "2", "related": "4", "new": "8", "untracked": "64"},
	program.Direction:       {"original": "0", "reply": "1"},
	program.Status:          {"expected": "1", "seen-reply": "2", "assured": "4", "confirmed": "8", "snat": "16", "dnat": "32", "dying": "512"}, // enum ip_conntrack_status
	program.SourceType:      fibNumbers,
	program.DestinationType: fibNumbers,
	program.DestinationHere: fibNumbers,
}

// enum rt_scope and RTN_*, include/uapi/linux/rtnetlink.h
var fibNumbers = map[string]string{
	"unicast": "1", "local": "2", "broadcast": "3", "anycast": "4", "multicast": "5", "blackhole": "6", "unreachable": "7", "prohibit": "8",
}

// plainFields are conditions that are one field of nft with numbers or names.
var plainFields = map[program.Field]string{
	program.LinkType: "meta iiftype", program.VLAN: "vlan id", program.Length: "meta length", program.HopLimit: "ip6 hoplimit",
	program.ICMPType: "icmp type", program.ICMPCode: "icmp code", program.ICMPv6Type: "icmpv6 type", program.ICMPv6Code: "icmpv6 code",
	program.Owner: "meta skuid", program.State: "ct state", program.Direction: "ct direction", program.Status: "ct status",
	program.SourceType: "fib saddr type", program.DestinationType: "fib daddr type", program.DestinationHere: "fib daddr . iif type",
	program.TCPFlags: "tcp flags", program.Mark: "meta mark", program.Time: timeField,
}

const timeField = "meta time"

// addressFields are behind the name of a family; keyFields are what else a set's key
// may be made of.
var (
	addressFields = map[program.Field]string{
		program.Source: "%s saddr", program.Destination: "%s daddr",
		program.OriginalSource: "ct original %s saddr", program.OriginalDestination: "ct original %s daddr",
	}
	keyFields = map[program.Field]string{
		program.Protocol: "meta l4proto", program.Port: "th dport", program.SourcePort: "th sport",
		program.InInterface: "iifname", program.OutInterface: "oifname", program.Mark: "meta mark",
	}
)

// matcher lowers the conditions of one rule in one family.
type matcher struct {
	l         *lowering
	rule      *program.Rule
	family    int                   // 4, 6; 0 is both
	protocols []program.NumberRange // of the positive condition; nil: none
}

// familiesOf says which families a rule can match, and whether it has to be
// written for each apart.
func (l *lowering) familiesOf(r *program.Rule) (families []int, apart bool) {
	can := map[int]bool{4: true, 6: true}
	only := func(f int) { can[10-f] = false; apart = true }
	for _, c := range r.Match {
		apart = apart || slices.ContainsFunc(c.SetKey, isAddress)
		switch c.Field {
		case program.Family:
			apart = true
			for _, f := range []int{4, 6} {
				if holds(c.Numbers, uint64(f)) == c.Not {
					can[f] = false
				}
			}
		case program.Source, program.Destination, program.OriginalSource, program.OriginalDestination:
			apart = true
		case program.Protocol:
			if holds(c.Numbers, icmp) || holds(c.Numbers, icmpv6) {
				apart = true
			}
		case program.ICMPType, program.ICMPCode:
			only(4)
		case program.ICMPv6Type, program.ICMPv6Code, program.HopLimit, program.Extension:
			only(6)
		case program.DSCP, program.Fragment:
			apart = true
		}
	}
	for _, a := range r.Actions {
		e := program.EffectOf(a)
		if f := e.Rewrites.Family(); f != 0 {
			only(f)
		}
		// Limits get a chain of their own that tells the families apart.
		apart = apart || !e.Bounds && slices.ContainsFunc(e.Reads, isAddress)
	}
	for _, f := range []int{4, 6} {
		if can[f] {
			families = append(families, f)
		}
	}
	return families, apart
}

func familyOf(is4 bool) int {
	if is4 {
		return 4
	}
	return 6
}

func holds(ranges []program.NumberRange, n uint64) bool {
	return slices.ContainsFunc(ranges, func(r program.NumberRange) bool { return r.From <= n && n <= r.To })
}

// match gives the ways in which a packet of the family fits the rule.
func (l *lowering) match(r *program.Rule, family int) (ways, error) {
	m := &matcher{l: l, rule: r, family: family}
	if err := m.findProtocols(); err != nil {
		return never, err
	}
	out := always()
	for i := range r.Match {
		w, err := m.condition(&r.Match[i])
		if err != nil {
			return never, err
		}
		out = out.and(w)
	}
	for i := range out {
		out[i] = m.complete(out[i])
	}
	return out, nil
}

// findProtocols notes the positive condition on the protocol, which says what
// header ports are in, without the other family's ICMP.
func (m *matcher) findProtocols() error {
	for _, c := range m.rule.Match {
		if c.Field != program.Protocol || c.Not || c.Set != "" {
			continue
		}
		if m.protocols != nil {
			return fmt.Errorf("two conditions on the protocol")
		}
		m.protocols = m.ofFamily(c.Numbers)
		if m.protocols == nil {
			m.protocols = []program.NumberRange{}
		}
	}
	return nil
}

func (m *matcher) ofFamily(numbers []program.NumberRange) []program.NumberRange {
	other := map[int]uint64{4: icmpv6, 6: icmp}[m.family]
	var out []program.NumberRange
	for _, r := range program.MergeNumbers(numbers) {
		if m.family == 0 || other < r.From || other > r.To {
			out = append(out, r)
			continue
		}
		if r.From < other {
			out = append(out, program.NumberRange{From: r.From, To: other - 1})
		}
		if other < r.To {
			out = append(out, program.NumberRange{From: other + 1, To: r.To})
		}
	}
	return out
}

// single is the protocol where the rule is about exactly one.
func (m *matcher) single() (uint64, bool) {
	if len(m.protocols) == 1 && m.protocols[0].From == m.protocols[0].To {
		return m.protocols[0].From, true
	}
	return 0, false
}

func (m *matcher) condition(c *program.Condition) (ways, error) {
	if c.Set != "" {
		return m.inSet(c)
	}
	switch c.Field {
	case program.Opaque:
		if c.Not {
			return never, fmt.Errorf("an opaque condition cannot be negated")
		}
		return one(Statement{Kind: Opaque, Name: c.Text}), nil
	case program.Family:
		if holds(c.Numbers, uint64(m.family)) == c.Not {
			return never, nil
		}
		return always(), nil
	case program.InInterface:
		return m.interfaces("iifname", c)
	case program.OutInterface:
		return m.interfaces("oifname", c)
	case program.Protocol:
		return m.protocol(c)
	case program.Port, program.SourcePort:
		return m.port(c)
	case program.OriginalPort:
		return m.originalPort(c)
	case program.DSCP:
		return m.numbers(fmt.Sprintf("%s dscp", ipOf(m.family)), c, 63), nil
	case program.Fragment:
		return m.fragment(c)
	case program.Extension:
		return m.extension(c)
	case program.Time:
		return before(c)
	}
	switch {
	case isAddress(c.Field):
		return m.addresses(c)
	case len(c.Names) > 0:
		return m.named(c)
	case plainFields[c.Field] != "":
		return m.masked(c), nil
	}
	return never, fmt.Errorf("condition on %s has no value that this backend knows", c.Field)
}

func ipOf(family int) string {
	if family == 6 {
		return "ip6"
	}
	return "ip"
}

func operator(not bool) string {
	if not {
		return "!="
	}
	return "=="
}

func turned(not bool) ways {
	if not {
		return always()
	}
	return never
}

// rank orders the statements of a match: what is cheap to ask and turns many
// packets away comes first, named sets and the routing table last. Conditions
// have no effects, so their order has no meaning; but a port has to be
// behind its protocol.
func rank(s Statement) int {
	if s.Kind != Match {
		return 9
	}
	switch field := s.Field; {
	case s.Op == "!=" && (field == "iif" || field == "oif"):
		return 8 // not loopback: nearly every packet
	case field == "iif", field == "oif":
		return 0
	case field == "ct status", field == "ct state" && s.Op == "==" && len(s.Values) == 1:
		return 1 // what begins a flow that nobody rewrites is asked no more
	case field == "meta l4proto" && len(s.Values) > 1:
		return 4 // a look-up
	case field == "meta l4proto":
		return 2
	case field == "meta nfproto":
		return 3
	case strings.HasPrefix(field, "ct state"), strings.HasPrefix(field, "ct direction"):
		return 4
	case s.Set == "" && (strings.HasPrefix(field, "iif") || strings.HasPrefix(field, "oif")):
		return 6 // a name is compared in three times the time of a number, for either family
	case strings.HasPrefix(field, "fib"), strings.HasPrefix(field, "exthdr"), strings.HasPrefix(field, "frag"), field == "meta skuid", field == timeField:
		return 9
	case field == "socket mark":
		return 11 // may look for a socket
	case strings.HasPrefix(field, "ct original"):
		return 6
	case s.Set != "":
		return 7
	case strings.HasPrefix(field, "ip"):
		return addressRank
	}
	return 4
}

const addressRank = 5

// complete orders the statements of one way and makes sure of the family.
func (m *matcher) complete(way []Statement) []Statement {
	out := slices.Clone(way)
	// What bypasses tracking, and flags, are asked for before anything else is known of a
	// packet: most are TCP, of either family. An address tells the family, and of what does
	// not bypass most have another.
	untracks, literal := m.rule.Untracks(), func(s Statement) bool { return s.Set == "" && m.rank(s) == addressRank }
	compared := func(s Statement) bool { return literal(s) && len(s.Values) == 1 }
	family := untracks && !slices.ContainsFunc(out, compared) && slices.ContainsFunc(out, func(s Statement) bool {
		return s.Field == "meta l4proto" || asksPart(s, "sport") || asksPart(s, "dport")
	}) || slices.ContainsFunc(out, func(s Statement) bool { return s.Field == flagsWord })
	if m.family != 0 && (family || !slices.ContainsFunc(out, func(s Statement) bool { return impliesFamily(s, m.family) })) {
		out = append(out, Statement{Kind: Match, Field: "meta nfproto", Op: "==", Values: []string{nfproto[m.family]}})
	}
	// Connections that were rewritten are told apart by both their ends; by one of them no
	// sooner than by that they were.
	status := slices.ContainsFunc(out, func(s Statement) bool { return s.Field == "ct status" }) &&
		slices.ContainsFunc(out, func(s Statement) bool { return strings.HasSuffix(s.Field, "daddr") })
	sorting.StableBy(out, func(a, b Statement) int {
		if first := func(s Statement) bool { return status && literal(s) || untracks && compared(s) }; first(a) != first(b) {
			return map[bool]int{true: -1, false: 1}[first(a)]
		}
		return m.rank(a) - m.rank(b)
	})
	unmerged(out)
	m.asInHeader(out)
	field := func(s Statement) string { return s.Field }
	if family {
		beforeProtocol(out, field, "meta nfproto")
	}
	// Of most TCP packets the flags are others, and what else is taken for flags is found
	// out then.
	beforeProtocol(out, field, flagsWord)
	return out
}

// beforeProtocol asks for a field that stands right behind the protocol before it.
func beforeProtocol[T any](way []T, field func(T) string, first string) {
	for i := 1; i < len(way); i++ {
		if field(way[i]) == first && field(way[i-1]) == "meta l4proto" {
			way[i-1], way[i] = way[i], way[i-1]
		}
	}
}

// asInHeader puts fields that lie side by side in a header into the order of the
// header: nft asks two such values at once, and lists them in that order.
func (m *matcher) asInHeader(way []Statement) {
	for _, pair := range adjoining {
		first := slices.IndexFunc(way, func(s Statement) bool { return asksPart(s, pair.first) })
		second := slices.IndexFunc(way, func(s Statement) bool { return asksPart(s, pair.second) })
		if first > second && second >= 0 && m.rank(way[first]) == m.rank(way[second]) {
			way[first], way[second] = way[second], way[first]
		}
	}
}

// rank is rank with what counts last: an element counts as soon as it is found,
// and is to count only what all conditions let through. Of bans the element is
// asked first, though it then counts packets of the host's own addresses too:
// what would be before it is the routing table, which takes longer to ask than
// all the rest, and would be asked for every packet.
func (m *matcher) rank(s Statement) int {
	if s.Kind == Match && s.Set != "" {
		if k := m.l.tree.set(s.Set); k != nil && k.Counted && k.Life == program.Static {
			return 10
		}
	}
	return rank(s)
}

// impliesFamily says whether nft itself puts a condition on the family before
// the statement. Of ICMP it does not.
func impliesFamily(s Statement, family int) bool {
	return (s.Kind == Match || s.Kind == VerdictMap) &&
		slices.ContainsFunc(strings.Split(s.Field, " . "), func(part string) bool { return strings.HasPrefix(part, ipOf(family)+" ") })
}

// familyListed asks for a family by what is not the other one in a rule that answers
// with a reset: from such a rule nft lists no family that it asks for.
func familyListed(statements []Statement, family int) []Statement {
	if family == 0 || !slices.ContainsFunc(statements, func(s Statement) bool { return s.Kind == Reject && s.Name == "tcp reset" }) {
		return statements
	}
	for i, s := range statements {
		if s.asksFor(family) {
			statements[i].Op, statements[i].Values = "!=", []string{nfproto[10-family]}
		}
	}
	return statements
}

// familyOnce takes out the condition on the family where the verdict map behind
// it implies it.
func familyOnce(statements []Statement, family int) []Statement {
	if family == 0 || !slices.ContainsFunc(statements, func(s Statement) bool { return s.Kind == VerdictMap && impliesFamily(s, family) }) {
		return statements
	}
	return slices.DeleteFunc(statements, func(s Statement) bool { return s.asksFor(family) })
}

func (s Statement) asksFor(family int) bool {
	return s.asksFamily() && s.Op == "==" && slices.Equal(s.Values, []string{nfproto[family]})
}
