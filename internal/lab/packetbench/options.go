package packetbench

import (
	"context"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/measure"
	"sluice/internal/language/resolve"
)

// Names of the subjects that every run has, as figures have them.
const (
	Bare   = "no rules"
	Sluice = "sluice"
	// Again is put behind the name of the first subject: its second lab.
	Again = ", again"
)

// Subject is one way to have the policy in the kernel of a lab.
type Subject struct {
	Name string
	Load func(ctx context.Context, l *measure.Lab) error
}

// EndError is the error of a Load that ends the run, where any other leaves the subject
// out.
type EndError struct{ Err error }

func (e *EndError) Error() string { return e.Err.Error() }
func (e *EndError) Unwrap() error { return e.Err }

// Kind is what packets have in common.
type Kind string

// Kinds, in the order in which they are measured. Those that a policy does not
// have are named in the report with the reason.
const (
	Banned             Kind = "banned"              // of a banned address, to the host
	Blocked            Kind = "blocked"             // to the host, new, refused by a rule or the default
	Allowed            Kind = "allowed"             // to the host, new, allowed by a rule or the default
	Established        Kind = "established"         // to the host, of a known connection
	Bypassed           Kind = "bypassed"            // to the host, of a service without connection state
	Forwarded          Kind = "forwarded"           // through the host, new
	ForwardEstablished Kind = "forward-established" // through the host, of a known connection
	NAT                Kind = "nat"                 // rewritten, new, of each kind of line of nat; or without state
	NATEstablished     Kind = "nat-established"     // rewritten, of a known connection
)

// Kinds are all of them.
var Kinds = []Kind{Banned, Blocked, Allowed, Established, Bypassed, Forwarded, ForwardEstablished, NAT, NATEstablished}

// Options say what to measure.
type Options struct {
	Policy   string // file
	StateDir string // country data, copies of lists and calibration are taken from there; nothing is written
	// Binary is the sluice that applies the policy; "" leaves Sluice itself out, and
	// the first of Subjects is what A/A is made of.
	Binary string
	// Subjects are measured beside Sluice, in this order. One that cannot be loaded
	// (EndError apart) or
	// that treats a kind otherwise than the policy says is left out there with a note.
	Subjects []Subject
	// Loaded is called for each lab in which Sluice has loaded the policy; nil: nothing is.
	Loaded func(*measure.Lab) error
	// Resolved is told what the policy is on the labs before any subject is loaded.
	Resolved func(*resolve.Resolved) error

	Kinds    []Kind           // nil: all
	Families []addrset.Family // nil: both

	// Labs is how many each subject has, of which the one counts in which a packet costs
	// least: every set that the kernel hashes begins with a random number, by which its
	// elements are in each other's way or not. 0: one, and of the first subject two; else
	// at least two.
	Labs int

	Sources int    // of a traffic, at most; 0: 65,536
	Flows   int    // known connections of a traffic, at most; 0: 4,096
	Seed    uint64 // of what is drawn

	Rounds int           // 0: 25
	For    time.Duration // go on with rounds until this is over, instead of Rounds; 0: no
	// Packets is exactly how many packets a timed injection has, so that two runs do
	// the same; 0: as many as go into some milliseconds.
	Packets int

	Way measure.Way // how packets come in; zero: what the kernel has

	// Progress is told what goes on; nil: nobody. Done of Total are rounds, both 0
	// before the first.
	Progress func(what string, done, total int)
}
