package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var listenQueue = Check{
	ID:    "listen-queue",
	What:  "connections are dropped because a program does not accept them in time",
	Least: check.Error,
	Why: `An open connection waits in the queue of its listening socket until the program accepts it.
When the queue is full, the kernel drops further connections, and the client waits for seconds
before it tries again. That is not the firewall, but it looks the same from outside.`,
	Fix: `First find out why the program is slow. Then use a longer queue: net.core.somaxconn and the
program's own backlog (backlog in nginx's listen, ListenBacklog in Apache httpd).`,
	Undo:   "Write the setting back and restart the program.",
	ByHand: "a program uses a longer queue only after a restart",
	look: func(s *Seen, say func(Finding)) {
		n := s.Moved["TcpExt.ListenOverflows"]
		if n == 0 {
			return
		}
		f := Finding{
			Text: fmt.Sprintf("%s were dropped: the queue of a listening socket was full", english.Plural(n, "connection attempt")),
			Evidence: []Evidence{
				found("TcpExt ListenOverflows (nstat)", "%s in the window, %s since the namespace was made", english.Grouped(n), english.Grouped(s.Total["TcpExt.ListenOverflows"])),
				found("/proc/sys/net/core/somaxconn", "at most %s may wait", s.setting("net.core.somaxconn")),
			},
			Cost: fmt.Sprintf("%.1f connections a second wait for several seconds", s.second(n)),
			Fix:  []string{"ss -ltnp   # Recv-Q is how many wait, Send-Q how many may wait: find the program"},
		}
		if len(s.Queues) > 0 {
			f.Fix = nil
		}
		for _, q := range s.Queues {
			f.Evidence = append(f.Evidence, found("ss -ltnp", "%s at %s: %s wait, its backlog is %s", q.Program, q.At, english.Grouped(uint64(q.Waiting)), english.Grouped(uint64(q.Room))))
			f.Fix = append(f.Fix, fmt.Sprintf("find out why %s at %s is slow; for bursts, a longer backlog in its configuration and a restart", q.Program, q.At))
		}
		if now := s.number("net.core.somaxconn"); now > 0 && now < 4096 {
			f.Fix = append(f.Fix, "sysctl -w net.core.somaxconn=4096   # then restart the program")
			f.Undo = append(f.Undo, fmt.Sprintf("sysctl -w net.core.somaxconn=%d", now))
		}
		say(f)
	},
}
