package applybench

import "time"

// Options say what to measure.
type Options struct {
	// Policy is a file; "" is a policy of its own: services for Europe alone and 650
	// bans.
	Policy string
	// StateDir is where the country data, the copies of lists and the calibration are
	// taken from. Nothing is written there.
	StateDir string
	Binary   string // sluice
	Rivals   []string
	Rounds   int    // timed rounds; flooded and watched ones are fewer
	Seed     uint64 // of sources and of the ranges that change
	// Progress is told what goes on; nil: nobody. Done of total are rounds.
	Progress func(what string, done, total int)
}

// Names of the rivals.
const (
	Sluice    = "sluice"
	Unproved  = "sluice --no-verify"
	Again     = Unproved + ", again"
	NFT       = "nft -f, refilled"
	Careful   = "nft -f, in steps"
	IPSet     = "ipset, swapped"
	Firewalld = "firewalld"
)

// rivals are their names, in the order of the report.
var rivals = []string{Sluice, Unproved, Again, NFT, Careful, IPSet, Firewalld}

// Words by which --against names rivals beside Sluice.
var Words = map[string][]string{"nft": {NFT, Careful}, "ipset": {IPSet}, "firewalld": {Firewalld}}

// change is one step.
type change struct {
	name     string
	from, to int // states; nothing for none
}

// The states of a round.
const (
	nothing = iota
	base
	oneMore
	countries
	states
)

// Names of the changes, cases of the report.
const (
	atRest      = "nothing is done"
	fromNothing = "load from nothing"
	unchanged   = "reload, nothing changed"
	oneElement  = "one element more"
	onePercent  = "1 % of the countries' ranges changed"
)

// changes in the order in which a round makes them.
var changes = []change{
	{name: fromNothing, from: nothing, to: base},
	{name: unchanged, from: base, to: base},
	{name: oneElement, from: base, to: oneMore},
	{name: onePercent, from: oneMore, to: countries},
}

// settle is how long the kernel frees rules and sets behind a change.
const settle = 150 * time.Millisecond
