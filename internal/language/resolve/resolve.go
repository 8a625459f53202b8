package resolve

import (
	"errors"
	"io"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/system/host"
)

// Options is what a policy's names are resolved with.
type Options struct {
	// Facts of the host that the policy is for.
	Facts host.Facts
	// Geo opens the country data; asked only when the policy names a country
	// or continent.
	Geo func() (*geo.Database, error)
	// Lists gives the contents of sets with a URL. Nil: they are refused.
	Lists Lists
	// Live gives what the controller of a fleet gave of a live list, by [LiveCopy]; nil text
	// where it gave nothing. Nil: it never did.
	Live func(url string) (io.ReadCloser, error)
	// User gives the number of a user of the host. Nil: the host's own users.
	User func(name string) (uint32, error)
}

// Lists gives the last good copy of what a URL serves.
type Lists interface {
	// Open gives the text of a list and a name for messages. Refresh is how
	// old a copy may be, zero is any age.
	Open(url string, refresh time.Duration) (text io.ReadCloser, name string, err error)
}

// Resolved is a policy with all names resolved.
type Resolved struct {
	Policy *policy.Policy
	Facts  host.Facts
	Zones  map[string]*Zone
	Sets   map[string]*Set
	Users  map[string]uint32
	Inputs Inputs

	opt Options // to look again, see Origin
}

// Zone is a side of the host: packets by interface, by network, or by both at
// once.
type Zone struct {
	Name       string
	Pos        policy.Pos
	Interfaces []string    // a trailing * is a wildcard; RouteInterfaces is among them; empty: any
	Followed   []string    // what RouteInterfaces stands for by the facts
	Networks   addrset.Set // meaningful where HasNetworks
	// HasNetworks says that the zone asks for the networks too.
	HasNetworks bool
	// Own is the host's addresses on the zone's interfaces, as the facts say.
	Own addrset.Set
}

// Set is what a named set holds.
type Set struct {
	Name      string
	Pos       policy.Pos
	Addresses addrset.Set
	// Elements is the addresses as they were written, sorted, disjoint, not
	// merged, for a set that counts by element; nil otherwise.
	Elements  []addrset.Range
	Endpoints []policy.Endpoint // of a set of endpoints; Addresses is then empty
	Counters  bool
	// Living says that its contents change without the policy: it is counted,
	// refreshed, a file of single addresses, or edited by commands.
	Living bool
	// Others says that another program fills it: what is in Addresses, if anything, was when
	// the kernel was asked.
	Others bool
	// Expires says that commands edit it: some of its addresses may end by themselves, and
	// those in Ends do.
	Expires bool
	Ends    []addrset.Ending // sorted, disjoint, of both families
}

// IsEndpoints says whether the set holds addresses and services together.
func (s *Set) IsEndpoints() bool { return len(s.Endpoints) > 0 }

// Resolve resolves every name of the policy. What is wrong comes back as
// policy.Errors, all of it.
func Resolve(p *policy.Policy, opt Options) (*Resolved, error) {
	if opt.User == nil {
		opt.User = hostUser
	}
	r := &resolver{
		opt: opt,
		out: &Resolved{
			Policy: p, Facts: opt.Facts,
			Zones: map[string]*Zone{}, Sets: map[string]*Set{}, Users: map[string]uint32{}, Inputs: Inputs{}, opt: opt,
		},
		open: map[string]bool{},
	}
	for _, z := range p.Zones {
		r.zone(z)
	}
	for _, s := range p.Sets {
		r.set(s)
	}
	r.users()
	r.guests()
	if len(r.errs) > 0 {
		return nil, r.errs
	}
	return r.out, nil
}

type resolver struct {
	opt      Options
	out      *Resolved
	open     map[string]bool // sets on the way, against cycles
	geo      *geo.Database
	geoError error
	errs     policy.Errors
}

func (r *resolver) fail(pos policy.Pos, message, hint string) {
	r.errs = append(r.errs, r.out.Policy.Errorf(pos, hint, "%s", message))
}

// add keeps an error that has its own place, or gives it one.
func (r *resolver) add(pos policy.Pos, err error, hint string) {
	var list policy.Errors
	if errors.As(err, &list) {
		r.errs = append(r.errs, list...)
		return
	}
	r.fail(pos, err.Error(), hint)
}
