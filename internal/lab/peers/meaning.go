package peers

import (
	"net/netip"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

// Meaning is what a policy decides.
type Meaning struct {
	// Banned is dropped from and to, flows that exist included. What no ban
	// reaches is not in it.
	Banned addrset.Set
	// Counted are those of which packets and bytes of each are asked for.
	Counted addrset.Set
	// Spared are those whom no limit bans.
	Spared addrset.Set
	Bypass []Bypass
	// Input, Output and Forward are nil where they are not policed.
	Input, Output, Forward *Section
	NAT                    []NAT
	InvalidAllow           bool
	// Forwards says that the host hands packets on, so that not every packet is for
	// itself.
	Forwards bool
	// Accelerated says that known connections are to be forwarded by a flowtable,
	// where the kernel has it.
	Accelerated bool
	// Interfaces are those that the host has now, without loopback.
	Interfaces []string
	// Bare leaves away what every firewall has around its rules: connections,
	// loopback, the ICMP that is needed. It is for measuring sets alone.
	Bare bool
	// Unsaid are the parts of the policy that no peer says.
	Unsaid []Refusal
}

// Refusal is a part of a policy that a peer cannot say.
type Refusal struct {
	Text   string // the line of the policy
	Reason string
}

func (r Refusal) String() string { return r.Text + ": " + r.Reason }

// Blocked is the meaning "drop what comes from the set" at input, and nothing else.
func Blocked(s addrset.Set) Meaning {
	return Meaning{Bare: true, Input: &Section{Default: policy.Allow, Rules: []Rule{{
		Text: "drop any from blocked", Action: policy.Drop, Ways: []Way{{}}, From: &Addresses{Name: "blocked", Set: s},
	}}}}
}

// bansByLimit says that a rule bans who is over its limit.
func (m Meaning) bansByLimit() (bans bool) {
	eachRule(m, func(r Rule) { bans = bans || r.bans() })
	return bans
}

func (r Rule) bans() bool { return r.Limit != nil && r.Limit.ThenBan != 0 }

// counted says that a ban of the family counts.
func (m Meaning) counted(f int) bool { return f == 4 && m.Counted.Has4() || f == 6 && m.Counted.Has6() }

// hooked is the section of a hook.
type hooked struct {
	hook policy.Hook
	*Section
}

// sections are those that are policed.
func (m Meaning) sections() []hooked {
	return slices.DeleteFunc([]hooked{{policy.Input, m.Input}, {policy.Forward, m.Forward}, {policy.Output, m.Output}},
		func(s hooked) bool { return s.Section == nil })
}

// Section is the rules of one hook; the first that matches decides.
type Section struct {
	Default    policy.Action
	DefaultLog *string
	Rules      []Rule
}

// Rule is one line of a section.
type Rule struct {
	Text     string // the policy's own line
	Action   policy.Action
	Ways     []Way // the packet is of one of them; at least one
	Family   int   // 0 both, 4, 6
	From, To *Addresses
	In, Out  []string // interfaces, a trailing * is a wildcard; empty: any
	Users    []uint32
	Limit    *policy.Limit
	Max      *policy.MaxConnections
	Log      *string
	// Answers turns the rule round: the ports are those of the source, the packet is
	// untracked and, of TCP, opens nothing. From and To, In and Out are turned already.
	Answers bool
	// Published asks what was rewritten on its way in for the port of before.
	Published bool
}

// Way is one protocol with its ports or types. The zero value is every protocol.
type Way struct {
	Protocol uint8 // IANA; ICMP and ICMPv6 are two ways
	Ports    []policy.PortRange
	Types    []uint8 // of ICMP
}

// Addresses is one side of a rule.
type Addresses struct {
	Name string // of the set; "" for literals
	Set  addrset.Set
	Not  bool
	// counts says that packets and bytes of each address are asked for.
	counts bool
}

// Bypass is a service that keeps no state.
type Bypass struct {
	Text      string
	Ways      []Way
	To        *Addresses        // nil: every address of the host
	Endpoints []policy.Endpoint // instead of Ways and To
}

// NAT is one rewriting.
type NAT struct {
	Text   string
	Kind   policy.NATKind
	Family int // 0 both, 4, 6

	From *Addresses // masquerade
	FromIn,
	Out []string
	As netip.Addr // masquerade with a fixed source; else invalid

	Way    Way // redirect
	In     []string
	On     addrset.Set    // the addresses; empty: the host's own, by the interface
	Target netip.AddrPort // an invalid address is the host itself, port 0 the packet's own

	Outside, Inside netip.Prefix // map
	Stateless       bool
}

// family of a way: 4 for ICMP, 6 for ICMPv6, else 0.
func (w Way) family() int {
	switch w.Protocol {
	case packet.ICMP:
		return 4
	case packet.ICMPv6:
		return 6
	}
	return 0
}

// of is the part of a side in one family; none means that no packet of the family
// fits, and nil that every one does.
func (a *Addresses) of(f int) (part *Addresses, none bool) {
	if a == nil {
		return nil, false
	}
	s := a.Set.Only4()
	if f == 6 {
		s = a.Set.Only6()
	}
	if s.IsEmpty() {
		return nil, !a.Not
	}
	return &Addresses{Name: a.Name, Set: s, Not: a.Not}, false
}

// families in which a rule, with one of its ways, is different: 0 alone when it can be
// said of both at once.
func (r Rule) families(w Way) []int {
	perSource := r.Limit != nil && r.Limit.PerSource || r.Max != nil && r.Max.PerSource
	if r.From == nil && r.To == nil && r.Family == 0 && w.family() == 0 && !perSource {
		return []int{0}
	}
	var out []int
	for _, f := range []int{4, 6} {
		if r.fits(w, f) {
			out = append(out, f)
		}
	}
	return out
}

// fits says whether a packet of a family can fit the rule by one of its ways.
func (r Rule) fits(w Way, f int) bool {
	_, noFrom := r.From.of(f)
	_, noTo := r.To.of(f)
	return !noFrom && !noTo && (r.Family == 0 || r.Family == f) && (w.family() == 0 || w.family() == f)
}
