package policy

import (
	"maps"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/selector"
)

// Fleet is what a policy says as one of a fleet's hosts, or, from [Reading.ReadFleet], of all.
type Fleet struct {
	Pos     Pos
	Name    string
	File    string            // of the fleet
	Host    string            // "": any with these labels
	Labels  map[string]string // without the host's name
	Guests  []Guest
	Parts   []Part // all that were there, in the order in which they join
	RollOut RollOut
	// What the controller may do without a signature of the policy; nil: nothing.
	Bans       *BanBounds
	Exceptions *ExceptionBounds
	Public     []Range // that may lead to guests
	Interfaces []Word  // of hosts, where guests may be attached; nil: any
	ShareBans  *ShareBans
	Access     []Access
	Approve    []string // of Approvals
	// OnlineSigning lets the controller sign policies, with a key that it was started with.
	OnlineSigning bool
	// Drift is where a part of the host says what happens to rules that somebody changed.
	Drift   Pos
	Restore bool // they are put back
}

// Part is a file of a fleet's policy.
type Part struct {
	Pos      Pos // of its hosts:, or of its first line
	File     string
	Selector *selector.Selector `json:"-"` // nil: every host
	Only     *selector.Selector `json:"-"` // of the guests that it is of; nil: of the host
	Matches  bool               // it is of this host's policy
	// From ReadFleet alone: its own sets that are live, and what its never-ban names, as far
	// as the file and that of the fleet write out what is in it.
	Live  []*Set
	Never addrset.Set `json:"-"`
}

// View is what one host is in a fleet: its labels, what the fleet's sets hold now, its guests.
type View struct {
	Host    string // "": none that is known by name
	Labels  map[string]string
	Members map[string][]Range // by sets with hosts or guests; those of other names count for nothing
	Guests  []Guest
	// Netns is the network namespace of the host that it is about, as ip-netns(8) names it: what
	// is forwarded there, to and from its guests, which are all of Guests then. "": the host.
	Netns string
	// Lists is the folder of what URLs of sets served when the policy was signed; nil: the
	// host asks for all lists itself.
	Lists *Word
}

// Guest is a machine on the host. What is written in no file has no places.
type Guest struct {
	Pos       Pos
	Name      string
	Interface Word // of the host or of Netns, to which the guest is attached
	Netns     Word `json:",omitzero"` // that the interface is in; "": the host's own
	Addresses []Range
	Public    []Range // that lead to it, one address each
	Labels    map[string]string
	// Rules is the file of its owner's rules, which speak of it alone; nil: there are none.
	Rules *Word `json:",omitzero"`
}

// Attaches says whether a guest may be where it is. In a network namespace it may: of which ones a
// host's agent file speaks.
func (f *Fleet) Attaches(g *Guest) bool {
	return f.Interfaces == nil || g.Netns.Text != "" || slices.ContainsFunc(f.Interfaces, func(w Word) bool {
		beginning, wild := strings.CutSuffix(w.Text, "*")
		return g.Interface.Text == w.Text || wild && strings.HasPrefix(g.Interface.Text, beginning)
	})
}

// String is whose policy it is, as errors name it.
func (f *Fleet) String() string {
	with := selector.LabelText(f.Labels)
	if f.Host == "" {
		return "a host with " + with
	}
	return "host " + f.Host + " (" + with + ")"
}

// selects says whether a selector selects the host; nil selects every one.
func (f *Fleet) selects(s *selector.Selector) bool {
	if s == nil {
		return true
	}
	labels := maps.Clone(f.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	if f.Host != "" {
		labels["host"] = f.Host
	}
	return s.Match(labels)
}

// IsGroup says that what is in a set the fleet knows.
func (s *Set) IsGroup() bool { return s.Hosts != nil || s.Guests != nil || s.Own }

// Groups are the sets by hosts or guests.
func (p *Policy) Groups() []*Set {
	return slices.DeleteFunc(slices.Clone(p.Sets), func(s *Set) bool { return s.Hosts == nil && s.Guests == nil })
}
