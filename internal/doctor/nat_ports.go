package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/prove/check"
)

var portsShared = Check{
	ID:    "nat-ports",
	What:  "NAT runs out of ports for connections to one service",
	Least: check.Warning,
	Why: `Connections that masquerade or source NAT gives the same address need different ports if they
go to the same address and port: at most 64,512, fewer if a rule or
net.ipv4.ip_local_port_range says so. When none is left, the packet is dropped. Reported from
half of them; an error from nine tenths.`,
	Fix:  "Rewrite to several addresses, or limit the connections of each machine behind the NAT.",
	Undo: "Remove the addresses.",
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
				Fix:      []string{"source NAT to a range of addresses, or a limit on the connections of each machine behind it"},
			}
			if n.Entries*10 >= ports*9 {
				f.Severity = check.Error
			}
			say(f)
		}
	},
}
