package nftables

import (
	"sluice/internal/program"
)

// Tree is one nft table of family inet, and those of one family beside it: see
// tables.go.
type Tree struct {
	Table      string
	Dormant    []string `json:",omitempty"` // as read: families of tables that somebody put to sleep, so that no packet meets their chains
	Counters   []Counter
	Limits     []Limit
	Sets       []*Set // sorted by name
	Flowtables []Flowtable
	Chains     []*Chain
	// Never is what never gets into the sets that commands fill.
	Never packed `json:",omitzero"`
	// Grace is for how many milliseconds flows pass that nobody knows, when tracking
	// begins.
	Grace uint64 `json:",omitempty"`
}

// Counter is a named counter object.
type Counter struct {
	Name    string // in the kernel
	ID      string // in the program
	Comment string
}

// Limit is a named limit object: a bucket that several rules share.
type Limit struct {
	Name string
	Rate Rate
}

// Rate is Packets per Unit with Burst packets at once, as nf_tables has it.
type Rate struct {
	Packets uint64
	Unit    string // second, minute, hour, day, week
	Burst   uint64
}

// Flowtable is a named flowtable.
type Flowtable struct {
	Name    string
	Devices []string // sorted
}

// Set is one named set in the kernel.
type Set struct {
	Name     string
	ID       string // of the program's set; "" for one that was read
	Life     program.Life
	Types    []string // of the key's parts: ipv4_addr, ipv6_addr, inet_proto, inet_service, ifname, mark
	Interval bool
	Counted  bool   // a counter for each element
	Asks     bool   `json:",omitempty"` // as read: its elements do more than count, such as to ask a limit
	Verdicts bool   // a verdict map: a verdict for each element
	Size     int    // of dynamic sets; 0 is unbounded
	Timeout  uint64 // of dynamic sets' elements, milliseconds; 0 is none
	Others   bool   `json:",omitempty"` // of a dynamic set: another program fills it
	// Expires says of another set that its elements may end by themselves.
	Expires bool `json:",omitempty"`
	Side    side `json:",omitempty"` // of the sets of ranges that commands fill
	// Follow says of a living set what of the host is in it.
	Follow *program.Following `json:",omitempty"`
	// Compared says of such a set of names that rules compare the one that is in it: see
	// compared.go.
	Compared bool `json:",omitempty"`
	Elements Elements
	Strange  []strange      `json:"-"` // as read, of dynamic sets: elements that no rule made so
	Comment  string         // for the reader
	Origin   program.Origin `json:",omitzero"`
}

// Chain is one chain.
type Chain struct {
	Name    string
	Comment string // for the reader
	Base    *Base  // nil for chains that only jumps reach
	Rules   []Rule
}

// Base is what makes a chain a base chain.
type Base struct {
	Type     string // filter, nat, route
	Hook     string
	Priority int
	Devices  []string // ingress alone; sorted
	Policy   string   // accept, drop
}

// Rule is one rule.
type Rule struct {
	Statements []Statement
	Comment    string         // what the kernel keeps
	Handle     uint64         `json:",omitempty"` // of a rule that was read
	Origin     program.Origin `json:",omitzero"`
}

// Kind says what a statement is, and with it which members it uses.
type Kind string

// Kinds of statements.
const (
	Match      Kind = "match"       // Field, Mask, Op, and Values or Set
	VerdictMap Kind = "vmap"        // Field, Mask, and Map or Set
	Verdict    Kind = "verdict"     // Name: accept, drop, return, continue
	Jump       Kind = "jump"        // Name
	Goto       Kind = "goto"        // Name
	Count      Kind = "counter"     // Name; "" counts in the rule itself
	RateLimit  Kind = "limit"       // Rate, Over; Name for a limit object
	ConnLimit  Kind = "ct count"    // Number, Over
	Log        Kind = "log"         // Name is the prefix, Number the netlink group; 0 is the kernel log
	NoTrack    Kind = "notrack"     //
	Reject     Kind = "reject"      // Name: "tcp reset", "icmpx 1"
	SetAdd     Kind = "set"         // Op: add, update, delete; Set, Field, Mask, Number is the time-out in seconds, Inner
	Rewrite    Kind = "mangle"      // Field; the new value is old & Mask ^ Name, Values[0] where it is another field
	DNAT       Kind = "dnat"        // Name: ip, ip6; Values: address; Number: port
	SNAT       Kind = "snat"        // Name: ip, ip6; Values: address; Ports
	DNATPrefix Kind = "dnat prefix" // Name: ip, ip6; Values: from, to
	SNATPrefix Kind = "snat prefix" // as DNATPrefix
	Masquerade Kind = "masquerade"  // Ports
	Redirect   Kind = "redirect"    // Number: port
	Offload    Kind = "flow add"    // Name
	Opaque     Kind = "opaque"      // Name is text for nft, passed through
	Unknown    Kind = "unknown"     // Name is JSON that the reader does not know
)

// Statement is one statement of a rule; Kind says which members it uses.
type Statement struct {
	Kind   Kind
	Field  string            `json:",omitempty"` // what is looked at: "ip saddr", "ct original ip daddr", "ip daddr . meta l4proto . th dport"
	Mask   string            `json:",omitempty"` // a number or an address, "" is all bits
	Op     string            `json:",omitempty"` // "==", "!=", "in" (one of these bits), "!" (none of them), "<", …
	Values []string          `json:",omitempty"` // sorted, ranges merged
	Set    string            `json:",omitempty"`
	Map    map[string]string `json:",omitempty"` // value to verdict
	Name   string            `json:",omitempty"`
	Number uint64            `json:",omitempty"`
	Ports  string            `json:",omitempty"` // first-last: what a source's port is taken from
	Rate   Rate              `json:",omitzero"`
	Over   bool              `json:",omitempty"`
	Inner  []Statement       `json:",omitempty"` // of the element
}

// ends says whether no statement after this one is ever reached.
func (s Statement) ends() bool {
	switch s.Kind {
	case Verdict, Goto, Reject, DNAT, SNAT, DNATPrefix, SNATPrefix, Masquerade, Redirect:
		return true
	}
	return false
}

// gates says whether a packet may end its way through the rule here.
func (s Statement) gates() bool {
	switch s.Kind {
	case Match, RateLimit, ConnLimit, SetAdd, Opaque, Unknown, VerdictMap:
		return true
	}
	return false
}

func (t *Tree) set(name string) *Set {
	for _, s := range t.Sets {
		if s.Name == name {
			return s
		}
	}
	return nil
}

func (t *Tree) chain(name string) *Chain {
	for _, c := range t.Chains {
		if c.Name == name {
			return c
		}
	}
	return nil
}
