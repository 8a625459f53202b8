package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/prove/check"
)

var portsShared = Check{
	ID:    "nat-ports",
	What:  "rewritten connections run out of ports towards one service",
	Least: check.Warning,
	Why: `Connections that masquerade or source NAT give one address need different ports where
they go to the same address and port: 64,512 at most, and fewer where a rule or
net.ipv4.ip_local_port_range says so. When none is left, the packet is dropped. Said from half of
them on; an error from nine tenths on.`,
	Fix:  "Rewrite to several addresses, or bound how many connections one machine behind may have.",
	Undo: "Take the addresses away.",
	look: func(s *Seen, say func(Finding)) {
		if s.Table == nil {
			return
		}
		const ports = 65536 - 1024
		for _, n := range s.Table.NAT {
			if n.Entries*2 < ports {
				continue
			}
			f := Finding{
				Text:     fmt.Sprintf("%s connections to %s leave as %s, of at most %s", english.Grouped(n.Entries), n.To, n.As, english.Grouped(uint64(ports))),
				Evidence: []Evidence{found("conntrack -L", "%s entries of %s with source NAT to %s towards %s", english.Grouped(n.Entries), packet.ProtocolName(n.Protocol), n.As, n.To)},
				Fix:      []string{"source NAT to a range of addresses, or a limit of connections for each machine behind"},
			}
			if n.Entries*10 >= ports*9 {
				f.Severity = check.Error
			}
			say(f)
		}
	},
}
