package program

import (
	"net/netip"
	"strings"

	"sluice/internal/base/addrset"
)

// Program is one complete firewall of one network namespace.
type Program struct {
	Owner      string // who owns the tables that it becomes, "sluice"
	Scope      string // name of the network namespace, "" is the host's own
	Hooks      []Hook
	Chains     []Chain // sorted by first use; base chains first
	Sets       []Set
	Counters   []Counter
	Flowtables []Flowtable
	Sysctls    []Sysctl
	Layout     Layout
	Notes      []Note
	// Uncounted says that the policy wants no counters by line.
	Uncounted bool
	// Grace is for how many milliseconds TCP passes that belongs to no known flow and
	// opens none, when connection tracking begins.
	Grace uint64
	// CountsOnly says that the program does nothing to packets. Backends hold it to
	// that.
	CountsOnly bool
	// OverBans is whom bans do not hold for in all they send and get: which of it they do
	// not hold for, the bans themselves say.
	OverBans []addrset.Range
	// Rests is what of the host is in the rules themselves, so that they have to be rebuilt
	// when it changes.
	Rests []Rest
}

// Rest is something that the host had when a program was made; one member is used.
type Rest struct {
	// Kept: rules take these for the host's own, and ask nobody.
	Kept []addrset.Range
	// Unbanned: no address of the host's is in the sets of bans. Without that, those
	// would hold the addresses of Spared too.
	Unbanned bool
	Spared   []addrset.Range
	// NoBridge: no packet is bridged.
	NoBridge bool
	// Devices are what the interfaces of flowtables and of chains at ingress were
	// chosen by: names and wildcards, and DefaultRoute; of "*" all but loopback.
	Devices []string
	// Beside: rules name the networks that this address shares with the host.
	Beside netip.Addr
	// Named: rules name this interface.
	Named string
}

// Layout is what the layout of all large sets together may take in the kernel;
// what is zero is the backend's to choose.
type Layout struct {
	Memory uint64 // bytes
	Load   uint64 // nanoseconds that one load takes
}

// HookKind names a hook of the kernel's packet path.
type HookKind string

// Hooks in the order in which a packet meets them.
const (
	XDP         HookKind = "xdp"
	Ingress     HookKind = "ingress"
	Prerouting  HookKind = "prerouting"
	Input       HookKind = "input"
	Forward     HookKind = "forward"
	Output      HookKind = "output"
	Postrouting HookKind = "postrouting"
	Egress      HookKind = "egress"
)

// Phase is when, among the base chains of one hook, a chain is asked.
type Phase string

// Phases; connection tracking stands between Raw and Mangle.
const (
	Early    Phase = "early" // before the flowtable, at ingress
	Raw      Phase = "raw"
	Mangle   Phase = "mangle"
	NAT      Phase = "nat"      // destination at prerouting and output, source at postrouting and input
	Watching Phase = "watching" // just before Filter: what Filter drops is seen
	Filter   Phase = "filter"
	Behind   Phase = "behind" // behind Filter: what is seen passed it
)

// Hook starts the base chain Chain.
type Hook struct {
	Kind    HookKind
	Phase   Phase
	Devices []string // ingress and egress only: interfaces, no wildcards
	Default Verdict  // what happens at the end of the base chain: Accept or Drop
	Chain   string
}

// Chain is an ordered list of rules.
type Chain struct {
	Name    string
	Comment string // one line for the reader: what the chain decides
	Rules   []Rule
}

// Rule matches when every condition holds.
type Rule struct {
	Stage   Stage  // what the rule is for in its base chain; "" in other chains
	ID      string // stable: from what the rule says, not where it stands; shared by the rules of one policy line; "" for what holds without being written
	Match   []Condition
	Actions []Action
	Origin  Origin
	Comment string // what the rule is for, where no policy line says it
}

// Set is a named group of keys.
type Set struct {
	ID       string // from the policy's name or from what made it; unique in the program
	Key      []Field
	Life     Life
	Counters bool // a counter for each element
	// Commands says of a dynamic set that commands fill it, and not packets:
	// addresses and ranges, each with a time-out of its own or none.
	Commands bool
	// Others says of a dynamic set that another program fills it. Addresses is then what it
	// had when somebody asked, and no part of the program.
	Others bool
	// Never is what never gets into a set that commands fill.
	Never    addrset.Set
	Verdicts bool // a verdict map: each element has a verdict
	// Addresses holds what is in a set with one address key whose elements
	// carry nothing of their own.
	Addresses addrset.Set
	// Expires says of a living set that addresses in it may end by themselves, in the
	// kernel; those in Ends do, which Addresses has too.
	Expires bool
	Ends    []addrset.Ending
	// Elements holds the elements of every other set: of several keys or of
	// another field, counted apart, or with a verdict. They are disjoint.
	Elements []Element
	Follow   *Following // of a Followed set
	Size     int        // upper bound in entries of a dynamic set
	Timeout  uint64     // of a dynamic set's entries, in milliseconds; 0 is none
	Origin   Origin
}

// wide ends the id of a dynamic set of prefixes.
const wide = ".wide"

// WideSet is the id of a set that the kernel fills with prefixes: of an address of IPv4
// the first 24 bits stand for it, of IPv6 the first 48.
func WideSet(id string) string { return id + wide }

// IsWide says that the id is one of WideSet.
func IsWide(id string) bool { return strings.HasSuffix(id, wide) }

// Widening is how many sources of a prefix a limit bans before it bans the prefix. One or
// two bad neighbours are chance, an eighth is a network that somebody has at hand.
const Widening = 8

// WidenedSet is the id of the set of the prefixes that limits banned.
var WidenedSet = WideSet("limit.banned")

// Life says who writes a set's contents.
type Life string

// Lives of a set.
const (
	Static  Life = "static"  // never edited, replaced as a whole
	Living  Life = "living"  // edited in place by element, keeps its name
	Dynamic Life = "dynamic" // filled by the kernel, kept over a reload
	// Followed sets hold what the host is: they are edited in place when it changes.
	// What they hold in a program is what it was then, and nothing may be proved by it.
	Followed Life = "followed"
)

// Element is one element of a set.
type Element struct {
	Parts   []Value // in the order of Set.Key
	Verdict Action  // of a verdict map: a Verdict, a Jump or a Goto
	Origin  Origin
	// Counter is the counter of the program that the element's own count
	// belongs to, in a set with Counters; "" is none. A packet counts on it when
	// all conditions of its rule hold, as if the rule had a Count.
	Counter string
}

// Len is how many elements the program gives the set; of plain addresses, the
// ranges of both families.
func (s *Set) Len() int { return s.Addresses.Len4() + s.Addresses.Len6() + len(s.Elements) }

// Value is one part of an element: an address range, a number range or a name.
type Value struct {
	Addresses addrset.Range
	Numbers   NumberRange
	Name      string
}

// NumberRange is inclusive.
type NumberRange struct{ From, To uint64 }

// Counter counts packets and bytes under a stable name; it survives a reload.
type Counter struct {
	Name    string
	Origin  Origin
	Comment string
}

// Flowtable is the kernel's fast path for established forwarded flows.
type Flowtable struct {
	Name    string
	Devices []string // interfaces, no wildcards
}

// Sysctl is a kernel setting that the policy asks for; apply writes it after
// the switch and takes it back with the policy.
type Sysctl struct {
	Name     string // "net.netfilter.nf_conntrack_max"
	Value    string
	HostWide bool // one value for the whole machine: not writable in a namespace
	Origin   Origin
}

// Note is something that the reader of a plan has to know: what the policy
// asks and this host or backend does otherwise.
type Note struct {
	Origin Origin
	Text   string
}

// RefreshCommand is the one that notes name. Their text is the same wherever the program
// is loaded: who prints it adds the flags that the command has there.
const RefreshCommand = "sluice refresh"

// Origin is where something was said.
type Origin struct {
	Foreign bool   `json:"foreign,omitempty"` // from another tool's ruleset, not from a policy
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`   // from 1; 0 is unknown
	Column  int    `json:"column,omitempty"` // from 1
	Text    string `json:"text,omitempty"`   // the rule or element as it was written, one line
}
