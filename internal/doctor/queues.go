package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var listenQueue = Check{
	ID:    "listen-queue",
	What:  "connections are dropped since a program does not take them in time",
	Least: check.Error,
	Why: `A connection that is open waits in the queue of its listening socket until the program
accepts it. When the queue is full, the kernel drops what would be one more, and the client
waits for seconds before it tries again. No firewall does that; it looks the same from
outside.`,
	Mend: `A longer queue (net.core.somaxconn, and what the program asks for: backlog of nginx's
listen, ListenBacklog of Apache httpd), after looking why the program is slow.`,
	Undo:   "Write the setting back and start the program anew.",
	ByHand: "a program takes a longer queue only when it is started anew",
	look: func(s *Seen, say func(Finding)) {
		n := s.Moved["TcpExt.ListenOverflows"]
		if n == 0 {
			return
		}
		f := Finding{
			Text: fmt.Sprintf("%s were dropped: the queue of a listening socket was full", english.Plural(n, "connection attempt")),
			Evidence: []Evidence{
				found("TcpExt ListenOverflows (nstat)", "%s in the window, %s since the namespace was made", english.Grouped(n), english.Grouped(s.Total["TcpExt.ListenOverflows"])),
				found("/proc/sys/net/core/somaxconn", "%s may wait at most", s.setting("net.core.somaxconn")),
			},
			Cost: fmt.Sprintf("%.1f connections a second wait for seconds", s.second(n)),
			Mend: []string{"ss -ltnp   # Recv-Q is how many wait, Send-Q how many may: find the program"},
		}
		if len(s.Queues) > 0 {
			f.Mend = nil
		}
		for _, q := range s.Queues {
			f.Evidence = append(f.Evidence, found("ss -ltnp", "%s at %s: %s wait, its backlog is %s", q.Program, q.At, english.Grouped(uint64(q.Waiting)), english.Grouped(uint64(q.Room))))
			f.Mend = append(f.Mend, fmt.Sprintf("find out why %s at %s is slow; for bursts, a longer backlog in its configuration, and start it anew", q.Program, q.At))
		}
		if now := s.number("net.core.somaxconn"); now > 0 && now < 4096 {
			f.Mend = append(f.Mend, "sysctl -w net.core.somaxconn=4096   # then start the program anew")
			f.Undo = append(f.Undo, fmt.Sprintf("sysctl -w net.core.somaxconn=%d", now))
		}
		say(f)
	},
}

var synCookies = Check{
	ID:    "syn-cookies",
	What:  "the host answers with SYN cookies: more connections begin than it has room for",
	Least: check.Warning,
	Why: `When the requests for connections of a listening socket are more than its queue holds,
the kernel answers without remembering them. That is right under a flood of SYNs; without one
the queue is too short. Connections by cookie lose window scaling where there are no TCP
time stamps.`,
	Mend: `Under a flood: drop or limit it before connection tracking. Otherwise a longer queue
(net.ipv4.tcp_max_syn_backlog, net.core.somaxconn).`,
	Undo:   "Write the settings back.",
	ByHand: "under a flood the cookies are right, and without one a program takes a longer queue only when it is started anew",
	look: func(s *Seen, say func(Finding)) {
		n := s.Moved["TcpExt.SyncookiesSent"]
		if n == 0 {
			return
		}
		say(Finding{
			Text: fmt.Sprintf("%s were sent: more connections begin than the host has room for", english.Plural(n, "SYN cookie")),
			Evidence: []Evidence{
				found("TcpExt SyncookiesSent (nstat)", "%s in the window", english.Grouped(n)),
				found("TcpExt SyncookiesFailed (nstat)", "%s answers to none in the window", english.Grouped(s.Moved["TcpExt.SyncookiesFailed"])),
			},
			Cost: fmt.Sprintf("%.0f SYNs a second", s.second(n)),
			Mend: []string{"in a policy of Sluice: bypass: [SERVICE], and a limit by source before it"},
		})
	},
}

var backlogFull = Check{
	ID:    "backlog",
	What:  "received packets are dropped since a processor's queue is full",
	Least: check.Error,
	Why: `Packets of devices without NAPI of their own (veth, tunnels) and those that RPS spreads
wait in a queue of 1,000 packets a processor. The counters are of the machine, all network
namespaces together. Stopping with packets left (squeezed) is no loss yet, and a remark
where it happens 100 times a second.`,
	Mend:  "A longer queue for bursts (net.core.netdev_max_backlog); for a steady load more processors (RPS), or cheaper rules.",
	Undo:  "Write the setting back.",
	Fixes: true,
	look: func(s *Seen, say func(Finding)) {
		var lost, squeezed uint64
		var where []Evidence
		for _, p := range s.Processors {
			lost += p.Dropped
			squeezed += p.Squeezed
			if p.Dropped+p.Squeezed > 0 {
				where = append(where, found("/proc/net/softnet_stat", "processor %d: %s dropped, stopped with packets left %s times, of %s packets", p.Number, english.Grouped(p.Dropped), english.Grouped(p.Squeezed), english.Grouped(p.Received)))
			}
		}
		const squeezedOften = 100 // a second
		f := Finding{Evidence: where}
		setting, larger := "net.core.netdev_max_backlog", uint64(10000)
		switch {
		case lost > 0:
			f.Text = fmt.Sprintf("%s were dropped in the receive queues of processors", english.Plural(lost, "packet"))
			f.Cost = fmt.Sprintf("%.0f packets a second", s.second(lost))
		case s.second(squeezed) >= squeezedOften:
			f.Severity = check.Remark
			f.Text = fmt.Sprintf("processors stopped receiving with packets left, %.0f times a second", s.second(squeezed))
			setting, larger = "net.core.netdev_budget", 600
		default:
			return
		}
		if now := s.number(setting); now > 0 && now < larger {
			f.Evidence = append(f.Evidence, found("sysctl "+setting, "%d", now))
			f.set("", s.to(setting, larger))
		}
		say(f)
	},
}

var udpBuffers = Check{
	ID:     "udp-buffers",
	What:   "datagrams are dropped since a program does not read them in time",
	Least:  check.Warning,
	Why:    `A datagram waits in the buffer of its socket. When that is full, the next ones are lost.`,
	Mend:   "A larger buffer (net.core.rmem_max and what the program asks for), after looking why the program is slow.",
	Undo:   "Write the setting back.",
	ByHand: "a program asks for a larger buffer itself, and may be slow for another reason",
	look: func(s *Seen, say func(Finding)) {
		n := s.Moved["Udp.RcvbufErrors"] + s.Moved["Udp6RcvbufErrors"]
		if n == 0 {
			return
		}
		say(Finding{
			Text:     fmt.Sprintf("%s of UDP were dropped: the buffer of a socket was full", english.Plural(n, "packet")),
			Evidence: []Evidence{found("Udp RcvbufErrors (nstat)", "%s in the window", english.Grouped(n)), found("/proc/sys/net/core/rmem_max", "%s bytes at most", s.setting("net.core.rmem_max"))},
			Cost:     fmt.Sprintf("%.0f packets a second", s.second(n)),
			Mend:     []string{"ss -lunm   # skmem: d is what each socket dropped"},
		})
	},
}

var filesFull = Check{
	ID:    "files",
	What:  "a program, or the machine, has nearly all the files open that it may",
	Least: check.Warning,
	Why: `A connection is an open file. At its limit a server accepts nothing more, and waits or
spins. Said at nine tenths of the limit.`,
	Mend:   "A higher limit: LimitNOFILE= of its unit, fs.file-max of the machine.",
	Undo:   "Take the line away and start the program anew.",
	ByHand: "a program takes a higher limit only when it is started anew, and may leak files instead",
	look: func(s *Seen, say func(Finding)) {
		for _, f := range s.Files.Full {
			say(Finding{
				Text:     fmt.Sprintf("%s (process %d) has %s of %s files open", f.Name, f.PID, english.Grouped(f.Open), english.Grouped(f.Most)),
				Evidence: []Evidence{found(fmt.Sprintf("/proc/%d/fd and limits", f.PID), "%s of %s", english.Grouped(f.Open), english.Grouped(f.Most))},
				Mend:     []string{fmt.Sprintf("LimitNOFILE=%d in its unit, then start it anew", 4*f.Most)},
			})
		}
		if m := s.Files; m.Most > 0 && m.Open*10 >= m.Most*9 {
			say(Finding{
				Severity: check.Error,
				Text:     fmt.Sprintf("the machine has %s of %s files open", english.Grouped(m.Open), english.Grouped(m.Most)),
				Evidence: []Evidence{found("/proc/sys/fs/file-nr", "%s of %s", english.Grouped(m.Open), english.Grouped(m.Most))},
				Mend:     []string{fmt.Sprintf("sysctl -w fs.file-max=%d", 2*m.Most)},
				Undo:     []string{fmt.Sprintf("sysctl -w fs.file-max=%d", m.Most)},
			})
		}
	},
}

var neighboursFull = Check{
	ID:    "neighbours",
	What:  "the table of neighbours (ARP, NDP) is full",
	Least: check.Error,
	Why: `The kernel has room for the link addresses of gc_thresh3 neighbours, of all network
namespaces together: a host of many machines or containers has more. Packets to others are
dropped.`,
	Mend:  "Higher bounds: net.ipv4.neigh.default.gc_thresh1 to 3, the same for IPv6.",
	Undo:  "Write the settings back.",
	Fixes: true,
	look: func(s *Seen, say func(Finding)) {
		n := s.Moved[neighboursRefused]
		if n == 0 {
			return
		}
		f := Finding{
			Text:     "the table of neighbours is full",
			Evidence: []Evidence{found("table_fulls of /proc/net/stat/arp_cache and ndisc_cache", "%s times in the window", english.Grouped(n))},
			Cost:     fmt.Sprintf("%.0f packets a second", s.second(n)),
		}
		for _, family := range []string{"ipv4", "ipv6"} {
			name := "net." + family + ".neigh.default.gc_thresh3"
			if now := s.number(name); now > 0 {
				f.Evidence = append(f.Evidence, found("sysctl "+name, "%d", now))
				f.set("", s.to(name, 8*now))
			}
		}
		say(f)
	},
}
