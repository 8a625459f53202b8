package apply

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/language/bans"
	"sluice/internal/language/policy"
	"sluice/internal/system/host"
	"sluice/internal/system/kernel/link"
)

// spared is what cannot be banned now.
type spared struct {
	never addrset.Set
	own   addrset.Set
	force bool
	peers []host.SSHClient // who is logged in over ssh, or may be, unless it is forced
	asker netip.Addr       // of them, who calls
	outer []host.OuterFlow // by which others are logged in through tunnels, unless it is forced
	guard []Reaching
}

// Reaching is addresses that a line of the host's guard names: By is its place and text.
type Reaching struct {
	By        string
	Addresses addrset.Set
}

// A range as wide as a prefix of these lengths is a large part of the internet.
const (
	wide4 = 7
	wide6 = 15
)

// spared finds what of these cannot be banned.
func (s *session) spared(c *commands, all addrset.Set, force bool) (*spared, error) {
	own, err := s.ownAddresses()
	if err != nil {
		return nil, err
	}
	out := &spared{never: c.Never(), own: own, force: force}
	if s.Reaching != nil {
		// By force a ban is possible while the guard has a mistake.
		if out.guard, err = s.Reaching(); err != nil && !force {
			return nil, remedied(ForceBan, fmt.Errorf("read the guard of this host, which says whom no ban may block: %w", err))
		}
	}
	if force {
		return out, nil
	}
	if s.Session != nil {
		out.asker = s.Session.Remote.Addr()
		out.peers = append(out.peers, *s.Session)
	}
	clients := host.SSHClientsOf
	if s.connected != nil {
		clients = s.connected.SSHClientsOf
	}
	peers, err := clients(all.Contains)
	if err != nil {
		return nil, fmt.Errorf("find out who is logged in over ssh: %w", err)
	}
	out.peers = append(out.peers, peers...)
	if s.around == nil || s.around.tunnels {
		if out.outer, err = host.OuterFlowsOf(all.Contains, s.Session); err != nil {
			return nil, fmt.Errorf("find out who is logged in through tunnels: %w", err)
		}
	}
	// What is never banned cannot be cut off either.
	out.peers = slices.DeleteFunc(out.peers, func(p host.SSHClient) bool {
		a := p.Remote.Addr()
		return out.own.Contains(a) || out.never.Contains(a)
	})
	return out, nil
}

// around is what a ban asks of the host itself, where that is kept.
type around struct {
	own      addrset.Set
	gateways []netip.Addr
	tunnels  bool
}

// look reads what is around.
func (s *session) look() error {
	s.around = nil
	own, err := s.ownAddresses()
	if err != nil {
		return err
	}
	tunnels, err := host.Tunnels()
	if err != nil {
		return fmt.Errorf("look for tunnels: %w", err)
	}
	s.around = &around{own, s.gateways(), tunnels}
	return nil
}

func (s *session) ownAddresses() (addrset.Set, error) {
	if s.around != nil {
		return s.around.own, nil
	}
	local, err := localAddresses()
	if err != nil {
		return addrset.Set{}, fmt.Errorf("list the own addresses: %w", err)
	}
	var b addrset.Builder
	for a := range local {
		b.AddAddr(a)
	}
	return b.Set(), nil
}

// gateways are those of the default routes, as far as they can be read.
func (s *session) gateways() []netip.Addr {
	if s.around != nil {
		return s.around.gateways
	}
	out, _ := link.Gateways()
	return out
}

// why says why something cannot be banned; nil where it can.
func (s *spared) why(b bans.Ban) error {
	all := b.Set()
	switch {
	case s.own.ContainsSet(all):
		return errors.New("it is this host's own address")
	case s.never.ContainsSet(all):
		return errors.New("it is never banned: " + s.reason(all))
	}
	for _, g := range s.guard {
		if g.Addresses.Overlaps(all) {
			return fmt.Errorf("the guard of this host forbids it: %s", g.By)
		}
	}
	if s.force {
		return nil
	}
	for _, p := range s.peers {
		switch peer := p.Remote.Addr(); {
		case !all.Contains(peer):
		case peer == s.asker:
			return remedied(ForceBan, fmt.Errorf("your ssh session comes from %s", peer))
		case p.Unproved:
			return remedied(ForceBan, fmt.Errorf("%s is connected to ssh now, and may be logged in", peer))
		default:
			return remedied(ForceBan, fmt.Errorf("%s is logged in over ssh now", peer))
		}
	}
	for _, o := range s.outer {
		if a := o.Remote.Addr(); all.Contains(a) && !s.never.Contains(a) {
			return remedied(ForceBan, fmt.Errorf("%s comes from %s, and %s is logged in through it now", o.Tunnel, a, o.Peer))
		}
	}
	if b.Country == nil && b.What.Holds(wide4, wide6) {
		return remedied(ForceWideBan, errors.New("it is a large part of the internet"))
	}
	return nil
}

// reason is what spares all of a set.
func (s *spared) reason(all addrset.Set) string {
	for _, n := range policy.NeverBannedAs {
		if n.Addresses.ContainsSet(all) {
			return n.Name
		}
	}
	return "never-ban of the policy exempts it"
}

// parts says which part of a ban is spared though the rest is banned, "" where
// that is none.
func (s *spared) parts(b bans.Ban) string {
	part := b.Set().Intersect(s.never.Union(s.own))
	if part.IsEmpty() {
		return ""
	}
	var words []string
	for spared := range part.Each() {
		if len(words) == shownParts {
			words = append(words, "more")
			break
		}
		words = append(words, spared.String())
	}
	return fmt.Sprintf("of %s, %s is not banned: never-ban, the host itself, loopback, link-local and multicast addresses are exempt", b.Name(), english.List(words))
}

// notesOf is what to say of bans that are no refusal.
func (s *session) notesOf(spared *spared, list []bans.Ban) []string {
	var out []string
	var banned addrset.Builder
	for _, b := range list {
		banned.AddSet(b.Set())
		if b.Single() {
			continue
		}
		if text := spared.parts(b); text != "" {
			out = append(out, text)
		}
	}
	all := banned.Set().Difference(spared.never).Difference(spared.own)
	return slices.Concat(out, s.letIn(all), s.depended(all))
}

// letIn says which exceptions let in some of what is banned, and whether they still do.
func (s *session) letIn(all addrset.Set) []string {
	hold, err := s.exceptions(s.now())
	if err != nil {
		return []string{fmt.Sprintf("the exceptions of what is banned could not be read: %v", err)}
	}
	var out []string
	for _, e := range LetIn(hold) {
		switch what, err := addrset.ParseRange(e.What); {
		case err != nil || !all.Overlaps(addrset.Of(what)):
		case e.OverBan:
			out = append(out, fmt.Sprintf("%s still reaches %s: an exception holds over bans, until it is lifted", e.What, e.To()))
		default:
			out = append(out, fmt.Sprintf("the exception of %s to %s does nothing while the ban holds", e.What, e.To()))
		}
	}
	return out
}

// shownParts bounds how much is named of what is spared.
const shownParts = 3

// depended says which gateways and name servers of the host are among what is
// banned.
func (s *session) depended(all addrset.Set) []string {
	var out []string
	tell := func(a netip.Addr, what string) {
		a = a.WithZone("")
		if all.Contains(a) {
			out = append(out, fmt.Sprintf("%s, which is banned now, is %s of this host", a, what))
		}
	}
	// What cannot be read is not worth failing for: it is a warning.
	for _, a := range s.gateways() {
		tell(a, "the default gateway")
	}
	resolvers, _ := host.Resolvers(s.Namespace)
	for _, a := range resolvers {
		tell(a, "a name server")
	}
	return out
}
