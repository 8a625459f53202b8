package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var tableSize = Check{
	ID:    "table-size",
	What:  "the connection table is too small for the load that it is to bear",
	Least: check.Warning,
	Why: `A connection takes an entry from its first packet until some time after its last one,
so a table needs room for the new connections of a second times the seconds that one lives.
How many begin is reckoned from the entries of closed connections, which live as long as
their time-out says; --expect N says how many there will be. Said where the table has not
twice the room for that, and as the fix of a full one, where what is refused counts too.`,
	Fix:     "Make the table larger; the finding says what that costs in memory.",
	Undo:    "Write the two settings back.",
	Fixable: true,
	look: func(s *Seen, say func(Finding)) {
		t := s.Table
		if t == nil || t.Most == 0 || s.nearlyFull() {
			return // said by tableFull
		}
		want := s.wanted()
		if want <= t.Most {
			return
		}
		rate, why := s.rate()
		f := Finding{
			Text: fmt.Sprintf("%s new connections a second want a table of %s entries, this one may have %s", english.Grouped(uint64(rate)), english.Grouped(want), english.Grouped(t.Most)),
			Evidence: []Evidence{
				found(why, "%s new connections a second", english.Grouped(uint64(rate))),
				found("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait", "%d s that an entry stays behind its connection", s.lifetime()),
				found("/proc/sys/net/netfilter/nf_conntrack_max", "%s entries may be", english.Grouped(t.Most)),
			},
		}
		s.resize(&f)
		if life := s.lifetime(); want > largeTable && life > shortLife {
			f.Fix = append(f.Fix, fmt.Sprintf("sysctl -w %s=%d   # then %s entries do", timeWait, shortLife, english.Grouped(max(1, want*shortLife/life))))
			f.Undo = append(f.Undo, fmt.Sprintf("sysctl -w %s=%d", timeWait, life))
		}
		say(f)
	},
}
