package policy

import (
	"time"

	"sluice/internal/base/addrset"
)

// Policy is one policy with everything that it includes, in the order in which
// it was read: the file itself, then its includes by name.
type Policy struct {
	File       string
	Dir        string   // the folder that the names of its files are relative to; "" is that of the process
	Includes   []string // the files that Include patterns named, in order
	Zones      []*Zone
	Sets       []*Set
	Services   []*Service       // the policy's own, not the built-in ones
	Ban        []Who            // never negated
	NeverBan   []Who            // never negated
	Exceptions *ExceptionBounds `json:",omitzero"` // nil: it says nothing about them
	Tracking   Tracking
	Layout     Layout
	// Uncounted leaves out the counters by line.
	Uncounted   bool
	CountersPos Pos
	// LogsNetlink sends what is logged, and what the defaults refuse, to a netlink log group.
	LogsNetlink bool
	LogPos      Pos
	Input       *Section // nil: the section is left out and not policed
	Output      *Section
	Forward     *Section
	Held        []Held `json:",omitempty"` // interfaces of guests
	NAT         []*NAT
	Expect      []*Expectation
	Fleet       *Fleet              `json:",omitzero"` // nil: of no fleet
	Broken      []Broken            // files that it does without, or of which it has another text
	OldWords    Errors              `json:"-"` // words that are called otherwise now, each a warning
	scoped      []string            // files that were included with only
	lines       map[string][]string // the text of each file, for messages
	texts       map[string][]byte   // of each file
	disk        Files               // where its files are; nil: on the disk
}

// Zone is a side of the host.
type Zone struct {
	Pos        Pos
	Name       string
	Interfaces []Word // names, names with a trailing *, or "default-route"
	Networks   []Range
}

// Word is a name with its place.
type Word struct {
	Pos  Pos
	Text string
}

// Range is a literal address, prefix or range with its place.
type Range struct {
	Pos   Pos
	Range addrset.Range
}

// Set is a named group of addresses or of endpoints. Exactly one of Elements,
// File, URL, Countries/Continents, Union, Endpoints, Hosts, Guests says what is in
// it (Countries and Continents may stand together); Except may follow any of
// these but Endpoints. File beside URL is what the URL served when the policy was
// signed, which is read instead.
type Set struct {
	Pos        Pos
	Name       string
	Elements   []Range
	File       *Word // as written; resolved against the folder of the file that names it
	URL        *Word
	Refresh    time.Duration // how old a copy of URL may be when it is read; 0 is any age
	Countries  []Word        // ISO 3166-1 alpha-2, upper case
	Continents []Word        // AF AN AS EU NA OC SA
	Union      []Word        // names of sets
	Except     []Word        // names of sets
	Endpoints  []Endpoint
	Hosts      *Word      `json:",omitzero"`  // a selector of hosts of a fleet; Elements are their addresses, as the view has them
	Guests     *Word      `json:",omitzero"`  // the same of guests
	Own        bool       `json:",omitzero"`  // it is the host's own guests
	Within     []Range    `json:",omitempty"` // that Hosts, Guests or Live may have no address outside of
	Live       bool       `json:",omitzero"`  // the controller of a fleet asks for URL, and hosts have it from there
	Counters   bool       // a counter for each element
	Others     bool       // another program fills it
	Living     bool       // commands add addresses and remove them
	Added      []Addition `json:",omitempty"` // by commands; see Policy.Add
}

// Addition is what a command has put into a living set.
type Addition struct {
	Set   string
	What  addrset.Range
	Until time.Time // of whole seconds; zero: for good
}

// Endpoint is an address and a service together.
type Endpoint struct {
	Pos      Pos
	Address  addrset.Range // one address or a prefix
	Protocol uint8
	Port     uint16
}

// Service is a named list of what it means on the wire.
type Service struct {
	Pos     Pos
	Name    string
	Matches []ServiceMatch
}

// ServiceMatch is one protocol with ports or ICMP types.
type ServiceMatch struct {
	Any      bool        // every protocol; the rest is zero
	Protocol uint8       // IANA; ICMP is 1 and stands for ICMPv6 too unless Only6
	Ports    []PortRange // empty: every port, or a protocol without ports
	ICMP     *ICMPType   // nil: every type
}

// PortRange is inclusive.
type PortRange struct{ From, To uint16 }

// ICMPType is one kind of ICMP message in both families; -1 where a family has none.
type ICMPType struct {
	Name   string
	V4, V6 int
}

// ServiceRef is a service as a rule names it.
type ServiceRef struct {
	Pos     Pos
	Text    string // canonical: "web", "tcp/25", "icmp echo-request"
	Matches []ServiceMatch
}

// Tracking says what keeps connection state, and how large the table is.
type Tracking struct {
	Bypass       []Bypass
	Table        *Table // nil: left as it is
	InvalidAllow bool
	InvalidPos   Pos
	ErrorsAll    bool // icmp-errors: all, also those about no known connection
	ErrorsPos    Pos
	Grace        time.Duration // as it is written; see Tracking.GraceTime
	GracePos     Pos
}

// DefaultGrace is longer than the retransmission of a busy connection takes.
const DefaultGrace = 3 * time.Second

// GraceTime is how long connections that nobody knows pass when tracking begins.
func (t *Tracking) GraceTime() time.Duration {
	if t.GracePos.Line == 0 {
		return DefaultGrace
	}
	return t.Grace
}

// Layout is what large sets together may take in the kernel; what is zero is
// left to the compiler.
type Layout struct {
	Memory             uint64 // bytes
	Load               time.Duration
	MemoryPos, LoadPos Pos
}

// Bypass takes a service out of connection tracking, for all of the host's
// addresses or only for those of To.
type Bypass struct {
	Pos      Pos
	Services []ServiceRef
	To       *Who // nil: every address of this host; else a set (of addresses or of endpoints) or literal
}

// Table sizes the connection table.
type Table struct {
	Pos      Pos
	Auto     bool
	Max      uint64 // entries; 0 left as it is
	Buckets  uint64 // 0 left as it is
	Timeouts []Timeout
}

// Timeout is one of the kernel's nf_conntrack_*_timeout* values.
type Timeout struct {
	Pos   Pos
	Name  string // "tcp-time-wait": net.netfilter.nf_conntrack_tcp_timeout_time_wait
	Value time.Duration
}

// Hook is which of a policy's sections.
type Hook string

// Sections of rules.
const (
	Input   Hook = "input"
	Output  Hook = "output"
	Forward Hook = "forward"
)

// Section is the rules of one hook in order; the first that matches decides.
type Section struct {
	Pos        Pos
	Hook       Hook
	Default    Action // Allow, Drop or Reject
	DefaultPos Pos
	DefaultLog *string // nil: no log
	Accelerate bool    // forward only
	AccelPos   Pos
	Rules      []*Rule
}

// Action is what a rule does.
type Action string

// Actions of rules; ClampMSS is for forward alone, Deny for expectations alone.
const (
	Allow    Action = "allow"
	Drop     Action = "drop"
	Reject   Action = "reject"
	ClampMSS Action = "clamp mss"
	Deny     Action = "deny" // Drop or Reject
)

// Done says what happened to a packet; "" of an action that is not certain.
func (a Action) Done() string {
	return map[Action]string{Allow: "allowed", Drop: "dropped", Reject: "rejected"}[a]
}

// Rule is one line of a section.
type Rule struct {
	Pos       Pos
	Text      string // canonical one-line form
	Action    Action
	Published bool
	Services  []ServiceRef // empty: any
	Family    int          // 0 both, 4, 6
	From, To  *Who
	In, Out   *Word // zones
	Users     []Word
	Limit     *Limit
	Max       *MaxConnections
	Until     time.Time `json:",omitzero"` // whole seconds of UTC; zero: for good
	Log       *string
	Exception bool `json:",omitzero"` // it is of no file: somebody is let in by command
	OverBan   bool `json:",omitzero"` // of an exception: before bans too
}

// Who is addresses: of sets, zones or literals, together; Not turns it round.
type Who struct {
	Pos   Pos
	Not   bool
	Items []WhoItem // at least one; they are one union
}

// WhoItem is one name or one literal.
type WhoItem struct {
	Pos     Pos
	Name    string // a set or a zone; "" for a literal
	Literal addrset.Range
}

// Limit is a rate of new flows. Over it the rule does not match or, with
// ThenBan, the source is banned.
type Limit struct {
	Pos       Pos
	Count     uint64
	Per       time.Duration
	Burst     uint64 // 0: Count
	PerSource bool
	ThenBan   time.Duration // 0: none; only with PerSource
	Widen     bool          `json:",omitzero"` // to the whole prefix where many of it are banned; only with ThenBan
}

// MostPlaces is the greatest number of connections of a source that is counted by
// completed handshakes; more are counted by entries in the connection table.
const MostPlaces = 64

// MaxConnections bounds the tracked connections through a rule.
type MaxConnections struct {
	Pos       Pos
	Count     uint32
	PerSource bool
}

// NATKind is what a line of nat does.
type NATKind string

// Kinds of NAT.
const (
	Masquerade NATKind = "masquerade"
	Redirect   NATKind = "redirect"
	Map        NATKind = "map"
)

// NAT is one line of nat.
type NAT struct {
	Pos    Pos
	Text   string // canonical one-line form
	Kind   NATKind
	Family int

	From *Who   // masquerade: whose packets
	Out  *Word  // masquerade: zone that they leave by
	As   *Range // masquerade … as ADDRESS: fixed source

	Service *ServiceRef // redirect: tcp and udp, with ports
	In      *Word       // redirect: zone whose addresses are meant
	On      []Range     // redirect … on ADDRESS: these addresses instead
	Target  *Target     // redirect

	Outside, Inside *Range // map: prefixes of one length
	Stateless       bool
}

// Target is where a redirect leads. An invalid Address is this host itself, a
// zero Port the port that the packet had.
type Target struct {
	Pos     Pos
	Address addrset.Range // one address; zero value: this host
	Port    uint16
}
