package query

import "time"

// State is whether packets that begin connections pass.
type State string

// States, from all of them to none.
const (
	Allowed State = "allowed" // all, without a limit
	Limited State = "limited" // all, some within a limit
	Partly  State = "partly"  // some
	Blocked State = "blocked" // none
)

// Map is from which countries connections may begin.
type Map struct {
	Policy    string    `json:"policy"` // its file
	Service   string    `json:"service"`
	Hook      string    `json:"hook"`
	To        string    `json:"to,omitempty"`
	Publisher string    `json:"publisher"`
	Date      time.Time `json:"date,omitzero"` // of the country data
	Countries []Place   `json:"countries"`     // by code
	Elsewhere Place     `json:"elsewhere"`     // the addresses of no country
	Notes     []string  `json:"notes,omitempty"`
	Seconds   float64   `json:"seconds"`
}

// Place is the addresses of a country, or those of none. IPv6 is counted in networks of /48.
type Place struct {
	Country   string `json:"country,omitempty"` // its code
	Name      string `json:"name"`
	State     State  `json:"state"`
	Addresses uint64 `json:"addresses"` // of IPv4
	Allowed   uint64 `json:"allowed"`   // of these, from which a connection may begin
	Prefixes6 uint64 `json:"prefixes6"`
	Allowed6  uint64 `json:"allowed6"`
	Lines     []Line `json:"lines"` // that decide
}

// Line is a line of a policy that decides, or what always holds.
type Line struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"` // 0: no line does
	Rule string `json:"rule"`
}

// Matrix is who reaches what: of each of Sources a row of Cells, in the order of Targets.
type Matrix struct {
	Policy  string   `json:"policy"` // its file
	Sources []Origin `json:"sources"`
	Targets []Target `json:"targets"`
	Cells   [][]Cell `json:"cells"`
	Notes   []string `json:"notes,omitempty"`
	Seconds float64  `json:"seconds"`
}

// Origin is who asks: a set or a zone of the policy, or everybody else.
type Origin struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // set, zone, elsewhere
}

// Target is what is asked for: a service of this host, or of a zone or set behind it.
type Target struct {
	Name    string `json:"name"`
	Hook    string `json:"hook"`
	Service string `json:"service"`
	To      string `json:"to,omitempty"`
}

// Cell is whether a source reaches a target, and which lines decide.
type Cell struct {
	State State  `json:"state"`
	Lines []Line `json:"lines"`
}
