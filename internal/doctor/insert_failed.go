package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var insertFailed = Check{
	ID:    "insert-failed",
	What:  "entries could not be inserted into the connection table, and their packets were dropped",
	Least: check.Warning,
	Why: `Two packets of one new flow that arrive at the same moment make two entries, and only one can
stay. The same happens to two flows that NAT gives the same port. The packet of the other entry
is dropped. Typical for DNS: a resolver sends the queries for A and AAAA from one port at once.`,
	Fix: `Do not track such queries ("bypass: [dns]" in a policy of Sluice), or have the resolver send
them one after the other (options single-request-reopen in resolv.conf). For NAT, use more
addresses or ports.`,
	Undo: "Track the service again.",
	look: func(s *Seen, say func(Finding)) {
		n := s.Moved["conntrack.insert_failed"]
		if n == 0 {
			return
		}
		say(Finding{
			Text: fmt.Sprintf("%s of new connections could not be inserted into the connection table", english.Plural(n, "packet")),
			Evidence: []Evidence{
				found("counter insert_failed of the connection table (conntrack -S)", "%s in the window, %s since the namespace was made", english.Grouped(n), english.Grouped(s.Total["conntrack.insert_failed"])),
			},
			Cost: fmt.Sprintf("%.1f packets a second are dropped", s.second(n)),
			Fix:  []string{"in a policy of Sluice: bypass: [dns]"},
		})
	},
}
