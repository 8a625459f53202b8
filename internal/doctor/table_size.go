package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var tableSize = Check{
	ID:    "table-size",
	What:  "the connection table is too small for the expected load",
	Least: check.Warning,
	Why: `A connection holds an entry from its first packet until some time after its last, so the table
needs room for the new connections of a second times the seconds that an entry lives. The rate
is computed from the entries of closed connections, which live as long as their timeout;
--expect N sets it instead. Reported if the table has less than twice that room. A full table
is reported as table-full, and its fix counts the refused packets too.`,
	Fix:     "Enlarge the table; the finding shows how much memory that takes.",
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
			Text: fmt.Sprintf("%s new connections a second need a table of %s entries; this one holds at most %s", english.Grouped(uint64(rate)), english.Grouped(want), english.Grouped(t.Most)),
			Evidence: []Evidence{
				found(why, "%s new connections a second", english.Grouped(uint64(rate))),
				found("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait", "an entry lives %d s after its connection", s.lifetime()),
				found("/proc/sys/net/netfilter/nf_conntrack_max", "maximum %s entries", english.Grouped(t.Most)),
			},
		}
		s.resize(&f)
		if life := s.lifetime(); want > largeTable && life > shortLife {
			f.Fix = append(f.Fix, fmt.Sprintf("sysctl -w %s=%d   # then %s entries are enough", timeWait, shortLife, english.Grouped(max(1, want*shortLife/life))))
			f.Undo = append(f.Undo, fmt.Sprintf("sysctl -w %s=%d", timeWait, life))
		}
		say(f)
	},
}
