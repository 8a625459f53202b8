package doctor

import (
	"fmt"
	"math/bits"
	"time"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

const (
	fullPercent  = 80
	recentlyFull = time.Hour

	conntrackMax     = "net.netfilter.nf_conntrack_max"
	conntrackBuckets = "net.netfilter.nf_conntrack_buckets"
	timeWait         = "net.netfilter.nf_conntrack_tcp_timeout_time_wait"

	// A table of more than largeTable entries is better avoided by entries that live
	// shortLife seconds behind a closed connection.
	largeTable = 1 << 20
	smallTable = 1 << 16 // none that was full is made smaller than that
	shortLife  = 30
)

var tableFull = Check{
	ID:    "table-full",
	What:  "the connection table is full, or nearly so",
	Least: check.Error,
	Why: `A packet that begins a connection and finds no room in the table is dropped before any rule is
evaluated ("nf_conntrack: table full, dropping packet"), even if no rule needs state for it.
Clients retry after 1, 3, 7 and more seconds, so requests take long before they fail. Entries
outlive their connections: a TCP connection that was closed properly keeps its entry for two
minutes. An error if the table is full or refuses packets now; a warning if it is 80 % full, or
if this namespace has refused packets and the kernel's log shows that a table of this machine
was full within the last hour.`,
	Fix: `Enlarge the table: nf_conntrack_max together with the buckets; memory is only used for entries
that exist. Or keep what needs no state out of it: "bypass" for a busy service in a policy of
Sluice, NOTRACK in both directions in other rulesets.`,
	Undo:    "Write the two settings back. A table with more entries than its maximum keeps them until they end.",
	Fixable: true,
	look: func(s *Seen, say func(Finding)) {
		t := s.Table
		if t == nil || t.Most == 0 {
			return
		}
		if !s.nearlyFull() {
			return
		}
		lost, full, logged := s.lost(), max(t.Entries, t.Peak) >= t.Most, s.wasFull()
		f := Finding{Evidence: []Evidence{
			found("/proc/sys/net/netfilter/nf_conntrack_count", "%s entries, at most %s in the window", english.Grouped(t.Entries), english.Grouped(max(t.Entries, t.Peak))),
			found("/proc/sys/net/netfilter/nf_conntrack_max", "maximum %s entries", english.Grouped(t.Most)),
		}}
		f.Text = fmt.Sprintf("the connection table is full: %s of %s entries", english.Grouped(max(t.Entries, t.Peak)), english.Grouped(t.Most))
		switch {
		case lost > 0:
			f.Evidence = append(f.Evidence, found("counters drop and early_drop of the connection table (conntrack -S)", "%s packets and entries in %s", english.Grouped(lost), english.Duration(s.Window.Round(time.Millisecond))))
			f.Cost = fmt.Sprintf("%.0f new connections a second are refused, or evict another's entry", s.second(lost))
		case full:
		case logged:
			f.Severity = check.Warning
			f.Text = fmt.Sprintf("the connection table was full %s ago; it has %s of %s entries now", english.Duration(s.Log.TableFullAge.Round(time.Second)), english.Grouped(t.Entries), english.Grouped(t.Most))
		default:
			f.Severity = check.Warning
			f.Text = fmt.Sprintf("the connection table is %d %% full: %s of %s entries", t.percent(), english.Grouped(max(t.Entries, t.Peak)), english.Grouped(t.Most))
		}
		if logged {
			f.Evidence = append(f.Evidence, found("the kernel's log (dmesg)", `%s that the table was full, the latest %s ago`, english.Plural(s.Log.TableFull, "line"), english.Duration(s.Log.TableFullAge.Round(time.Second))))
		}
		f.Evidence = append(f.Evidence, t.kinds()...)
		s.resize(&f)
		say(f)
	},
}

// lost are packets that found no room within the window, and entries that gave way to others.
func (s *Seen) lost() uint64 { return s.Moved["conntrack.drop"] + s.Moved["conntrack.early_drop"] }

// wasFull says that this namespace has refused packets, and the machine did so lately, since
// something was set against it.
func (s *Seen) wasFull() bool {
	return s.Total["conntrack.drop"] > 0 && s.Log.TableFull > 0 && s.Log.TableFullAge < recentlyFull &&
		(s.Since.IsZero() || s.Log.TableFullAge < time.Since(s.Since))
}

// nearlyFull says that the table is full, was so lately, or nearly is.
func (s *Seen) nearlyFull() bool {
	return s.lost() > 0 || s.wasFull() || s.Table.percent() >= fullPercent
}

// lifetime is how many seconds an entry stays when its connection was closed.
func (s *Seen) lifetime() uint64 {
	return max(1, s.number(timeWait))
}

// wanted is how many entries the table should have room for: twice the load, a power of two.
func (s *Seen) wanted() uint64 {
	t := s.Table
	rate, _ := s.rate()
	standing := t.Listed - min(t.Listed, t.Ended) // that have not ended
	need := 2 * (uint64(rate*float64(s.lifetime())) + standing)
	return 1 << bits.Len64(max(need, 1)-1)
}

// resize says how the table is made as large as it should be.
func (s *Seen) resize(f *Finding) {
	t, entries := s.Table, s.sized()
	f.Evidence = append(f.Evidence, found("/proc/slabinfo", "%s", t.sizeText()))
	f.set("at most "+bytesText(t.memory(entries, entries))+" of memory", s.to(conntrackBuckets, entries), s.to(conntrackMax, entries))
	f.Fix = append(f.Fix, fmt.Sprintf("in a policy of Sluice: tracking: {table: {max: %d, buckets: %d}}, or bypass for what needs no state", entries, entries))
}

func bytesText(n uint64) string {
	if n < 10<<20 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return english.Grouped(n>>20) + " MiB"
}
