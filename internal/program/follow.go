package program

import (
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
)

// DefaultRoute names, in a condition on an interface, every interface that a default
// route leaves by at the moment. What that is, is the host's to decide, and changes
// without the policy: nothing that is said of a program may rest on it. What the host
// had when the program was made is in the set of the same name, without the mark.
const DefaultRoute = followedMark + DefaultRouteSet

// DefaultRouteSet is the set of life Followed that DefaultRoute is asked of.
const DefaultRouteSet = "host.default-route"

// ExemptSet is the set of life Followed of who is exempt from bans by limits at the
// moment: who is logged in over ssh, the routers of the default routes and the host's
// name servers.
const ExemptSet = "host.exempt"

// ownSet is the id of the set of all of the host's own addresses, and begins those of
// its addresses in a zone.
const ownSet = "host.addresses"

// OwnSet is the id of the set of life Followed of the host's own addresses in a zone;
// "" is all of them. Link-local ones are in none.
func OwnSet(zone string) string {
	if zone == "" {
		return ownSet
	}
	return ownSet + "." + zone
}

// CutOwnSet turns OwnSet round.
func CutOwnSet(id string) (zone string, is bool) {
	if id == ownSet {
		return "", true
	}
	return strings.CutPrefix(id, ownSet+".")
}

// followedMark begins no name of an interface in a policy.
const followedMark = "@"

// FollowedName says of a name in a condition on an interface that the host decides which
// interfaces it stands for; set is where they are.
func FollowedName(name string) (set string, is bool) {
	return strings.CutPrefix(name, followedMark)
}

// Following says what of the host is in a Followed set: the names of interfaces where
// that is the set's key, else their addresses.
type Following struct {
	// Interfaces are names, wildcards and DefaultRoute; empty: all. What is exempt from
	// bans by limits (ExemptSet) is not of the host, and has none.
	Interfaces []string `json:"interfaces,omitempty"`
}

// Fits says whether an interface is one of some names: its own, a wildcard with a * at the
// end, or DefaultRoute, which stands for those in route.
func Fits(names []string, name string, route []string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		start, wild := strings.CutSuffix(n, "*")
		return n == name || n == DefaultRoute && slices.Contains(route, name) || wild && strings.HasPrefix(name, start)
	})
}

// Held is what a Followed set holds, sorted.
type Held struct {
	Names     []string     `json:"names,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
}

// Equal says that both hold the same.
func (h Held) Equal(o Held) bool {
	// JSON has U+FFFD for every byte of a name that is no text.
	same := func(a, b string) bool { return string([]rune(a)) == string([]rune(b)) }
	return slices.EqualFunc(h.Names, o.Names, same) && slices.Equal(h.Addresses, o.Addresses)
}

// Held is what a Followed set was given when the program was made.
func (s *Set) Held() Held {
	var out Held
	if s == nil {
		return out
	}
	for _, e := range s.Elements {
		switch v := e.Parts[0]; {
		case len(e.Parts) != 1:
		case v.Name != "":
			out.Names = append(out.Names, v.Name)
		case v.Addresses.From.IsValid():
			out.Addresses = append(out.Addresses, v.Addresses.From)
		}
	}
	return out
}

// Hold makes a Followed set hold what the host has.
func (s *Set) Hold(h Held) {
	s.Elements = nil
	for _, n := range h.Names {
		s.Elements = append(s.Elements, Element{Parts: []Value{{Name: n}}})
	}
	for _, a := range h.Addresses {
		s.Elements = append(s.Elements, Element{Parts: []Value{{Addresses: addrset.Range{From: a, To: a}}}})
	}
}
