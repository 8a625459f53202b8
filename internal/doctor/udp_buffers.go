package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var udpBuffers = Check{
	ID:    "udp-buffers",
	What:  "datagrams are dropped because a program does not read them in time",
	Least: check.Warning,
	Why:   "A datagram waits in the buffer of its socket. When that is full, further datagrams are lost.",
	Fix: `First find out why the program is slow. Then use a larger buffer: net.core.rmem_max and the
program's own setting.`,
	Undo:   "Write the setting back.",
	ByHand: "a program sets its own buffer, and may be slow for another reason",
	look: func(s *Seen, say func(Finding)) {
		n := s.Moved["Udp.RcvbufErrors"] + s.Moved["Udp6RcvbufErrors"]
		if n == 0 {
			return
		}
		say(Finding{
			Text:     fmt.Sprintf("%s of UDP were dropped: the buffer of a socket was full", english.Plural(n, "packet")),
			Evidence: []Evidence{found("Udp RcvbufErrors (nstat)", "%s in the window", english.Grouped(n)), found("/proc/sys/net/core/rmem_max", "%s bytes at most", s.setting("net.core.rmem_max"))},
			Cost:     fmt.Sprintf("%.0f packets a second", s.second(n)),
			Fix:      []string{"ss -lunm   # skmem: d is what each socket dropped"},
		})
	},
}
