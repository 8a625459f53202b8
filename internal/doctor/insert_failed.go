package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var insertFailed = Check{
	ID:    "insert-failed",
	What:  "entries of the connection table could not be inserted, and their packets were dropped",
	Least: check.Warning,
	Why: `Two packets of one new flow that come at the same moment make two entries, of
which one can stay; so do two flows that NAT gives the same port. The packet of the other one
is dropped. It is typical for DNS: a resolver asks for A and AAAA from one port at once.`,
	Fix: `Do not track what asks like that (in a policy of Sluice "bypass: [dns]"), or have the
resolver ask one after the other (options single-request-reopen in resolv.conf). With NAT, give it
more addresses or ports.`,
	Undo: "Track the service again.",
	look: func(s *Seen, say func(Finding)) {
		n := s.Moved["conntrack.insert_failed"]
		if n == 0 {
			return
		}
		say(Finding{
			Text: fmt.Sprintf("%s of new connections could not be put into the connection table", english.Plural(n, "packet")),
			Evidence: []Evidence{
				found("counter insert_failed of the connection table (conntrack -S)", "%s in the window, %s since the namespace was made", english.Grouped(n), english.Grouped(s.Total["conntrack.insert_failed"])),
			},
			Cost: fmt.Sprintf("%.1f packets a second are dropped", s.second(n)),
			Fix:  []string{"in a policy of Sluice: bypass: [dns]"},
		})
	},
}
