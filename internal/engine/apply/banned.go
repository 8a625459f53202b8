package apply

import (
	"net/netip"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
	"sluice/internal/system/kernel/conntrack"
)

// forgetBanned deletes the tracked flows of banned addresses. Rules ask bans of
// what begins a flow, so a ban holds for flows that exist by ending them: their
// next packet starts again, and is asked. It runs behind the switch, when no more
// such flows can begin. What cannot be deleted is told of.
func (s *session) forgetBanned(c change) {
	if c.to == nil {
		return
	}
	p := c.program
	if p == nil {
		var err error
		if p, err = s.program(c.to); err != nil {
			s.note("flows of banned addresses go on: %v", err)
			return
		}
	}
	switch n, err := EndBanned(p); {
	case err != nil:
		s.note("flows of banned addresses go on: %v", err)
	case n == 1:
		s.note("1 flow of a banned address ended")
	case n > 1:
		s.note("%d flows of banned addresses ended", n)
	}
}

// EndBanned deletes the tracked flows of the addresses that a program bans
// for what begins one, and says how many.
func EndBanned(p *program.Program) (int, error) {
	banned := bannedFlows(p)
	if banned.IsEmpty() {
		return 0, nil
	}
	local, err := localAddresses()
	if err != nil {
		return 0, err
	}
	return conntrack.Delete(func(e conntrack.Entry) bool { return ofBanned(e, banned, local) })
}

// ofBanned says whether an end of a flow is banned. The host's own addresses
// never are.
func ofBanned(e conntrack.Entry, banned addrset.Set, local map[netip.Addr]bool) bool {
	for _, a := range []netip.Addr{e.Original.Source, e.Original.Destination, e.Reply.Source, e.Reply.Destination} {
		if banned.Contains(a) && !local[a] {
			return true
		}
	}
	return false
}

// bannedFlows is the addresses that a program bans for what begins a flow. Of whom is let
// in over bans each packet is asked.
func bannedFlows(p *program.Program) addrset.Set {
	return bannedIn(p, program.StageBanFlows).Difference(addrset.Of(p.OverBans...))
}
