package apply

import (
	"maps"
	"net/netip"
	"slices"

	"sluice/internal/backend"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
	"sluice/internal/system/host"
)

// Who is exempt from bans by limits follows the host like the rest, with two
// differences. Whoever loads rules or syncs takes the routers, the name servers and who
// is logged in of that moment. Whoever compares leaves out of account who is logged in,
// since administrators come and go: what is missing is a router or a name server.

// exemptNow is what the set of those exempt holds: what it held last, and what is there.
func exemptNow(f *host.Facts, last program.Held) program.Held {
	all := slices.Concat(last.Addresses, f.Exempt())
	return program.Held{Addresses: sorting.Unique(all, netip.Addr.Compare)}
}

// afresh reads what is needed to fill sets again, and is what they held last without what
// that takes the place of. What cannot be read stays exempt.
func (s *session) afresh(f *host.Facts, sets []backend.FollowedSet, last map[string]program.Held) map[string]program.Held {
	if !slices.ContainsFunc(sets, func(set backend.FollowedSet) bool { return set.ID == program.ExemptSet }) {
		return last
	}
	err := s.servingUnread
	if err == nil {
		err = f.ReadPeers(s.Session)
	}
	if err != nil {
		s.note("exemptions from bans by limits stay as they are, since the current ones cannot be read: %v", err)
		return last
	}
	out := maps.Clone(last)
	delete(out, program.ExemptSet)
	return out
}

// lastHeld is what sets of an artifact held last: of who is exempt what this session
// has loaded, else what was recorded, else what it was compiled with.
func (s *session) lastHeld(a backend.Following) map[string]program.Held {
	out := s.lastKnown()
	if held, loaded := s.filled[program.ExemptSet]; loaded {
		out[program.ExemptSet] = held
	} else if _, known := out[program.ExemptSet]; !known {
		out[program.ExemptSet] = a.Held()[program.ExemptSet]
	}
	return out
}
