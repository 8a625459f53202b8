package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

// own says that an address is the host's.
func (s *Seen) own(a netip.Addr) bool {
	return slices.ContainsFunc(s.Devices, func(d Device) bool {
		return slices.ContainsFunc(d.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
	})
}

var reversePath = Check{
	ID:    "reverse-path",
	What:  "packets are dropped since answers to them would leave by another interface",
	Least: check.Warning,
	Why: `With rp_filter the kernel drops a packet whose source it would not route back the way
that the packet came: forged ones, and those of a host with two ways to the internet. No rule
sees them any more, and no log tells of them.`,
	Mend: `Where both ways are right: rp_filter=2 on these interfaces, which asks only for any way
back. Where the packets are forged, nothing.`,
	Undo:   "Write the setting back.",
	ByHand: "whether both ways are right or the packets are forged is not seen in a counter",
	look: func(s *Seen, say func(Finding)) {
		n := s.Moved["TcpExt.IPReversePathFilter"]
		if n == 0 {
			return
		}
		f := Finding{
			Text:     fmt.Sprintf("rp_filter dropped %s", english.Plural(n, "packet")),
			Evidence: []Evidence{found("TcpExt IPReversePathFilter (nstat)", "%s in the window, %s since the namespace was made", english.Grouped(n), english.Grouped(s.Total["TcpExt.IPReversePathFilter"]))},
			Cost:     fmt.Sprintf("%.1f packets a second", s.second(n)),
			Mend:     []string{"sysctl -w net.ipv4.conf.all.log_martians=1   # the kernel's log then says which; write 0 afterwards"},
		}
		for _, name := range []string{"all", "default"} {
			f.Evidence = append(f.Evidence, found("sysctl net.ipv4.conf."+name+".rp_filter", "%s", s.setting("net.ipv4.conf."+name+".rp_filter")))
		}
		if s.setting("net.ipv4.conf.all.rp_filter") == "1" {
			f.Mend = append(f.Mend, "sysctl -w net.ipv4.conf.all.rp_filter=2   # where both ways are right")
			f.Undo = append(f.Undo, "sysctl -w net.ipv4.conf.all.rp_filter=1")
		}
		say(f)
	},
}

var bridgedFrames = Check{
	ID:    "bridged-frames",
	What:  "frames between the ports of a bridge pass the rules of iptables and nftables",
	Least: check.Remark,
	Why: `The module br_netfilter, which Docker and Kubernetes load, sends each bridged frame of IP
through connection tracking and the chains of routed packets. That costs what a routed packet
costs, and rules of forward may drop what only a bridge passes on. Containers behind a bridge
may need it for published ports; virtual machines do not.`,
	Mend:   "Turn it off where nothing relies on it: net.bridge.bridge-nf-call-iptables=0, the same for ip6tables.",
	Undo:   "Write 1.",
	ByHand: "containers behind a bridge may rely on it for the ports that they publish",
	look: func(s *Seen, say func(Finding)) {
		f := Finding{}
		for _, name := range []string{"net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables"} {
			if s.setting(name) == "1" {
				f.Evidence = append(f.Evidence, found("sysctl "+name, "1"))
				f.Mend = append(f.Mend, "sysctl -w "+name+"=0")
				f.Undo = append(f.Undo, "sysctl -w "+name+"=1")
			}
		}
		ports := 0
		for _, d := range s.Devices {
			if i := slices.IndexFunc(s.Devices, func(m Device) bool { return m.Index == d.Master && m.Kind == "bridge" }); i >= 0 && d.Up {
				ports++
			}
		}
		if len(f.Evidence) == 0 || ports < 2 { // nobody bridges
			return
		}
		f.Text = fmt.Sprintf("bridged frames pass the firewall: br_netfilter is on, and %s of bridges are up", english.Plural(ports, "port"))
		say(f)
	},
}

var dropped = Check{
	ID:    "drops",
	What:  "the kernel gives packets up",
	Least: check.Remark,
	Why: `Each packet that the kernel does not deliver is counted by the function that gave it up
and the reason that it names: NETFILTER_DROP is a rule of some firewall, or a full connection
table. Counted by a BPF program at the tracepoint kfree_skb, within the window; kernels without
BTF cannot. Said from ten packets on, and one a second.`,
	Mend:   "Ask on by the reason. What rules dropped is no illness by itself.",
	Undo:   "Nothing was changed.",
	ByHand: "what rules drop is no illness by itself",
	look: func(s *Seen, say func(Finding)) {
		var total uint64
		var where []Evidence
		for i, d := range s.Drops {
			total += d.Total
			if i < mostTop {
				where = append(where, found("tracepoint kfree_skb", "%s: %s", d.Name, english.Plural(d.Total, "packet")))
			}
		}
		if total < 10 || s.second(total) < 1 {
			return
		}
		say(Finding{
			Text:     fmt.Sprintf("the kernel gave up %s, most of them in %s", english.Plural(total, "packet"), s.Drops[0].Name),
			Evidence: where,
			Cost:     fmt.Sprintf("%.0f packets a second", s.second(total)),
		})
	},
}

var listensWide = Check{
	ID:    "listens-wide",
	What:  "a program listens on every address, though only the host itself uses it",
	Least: check.Remark,
	Why: `What listens at 0.0.0.0 or :: is one mistake in a firewall away from the internet. Said of
programs to which somebody is connected now, and all of them from loopback.`,
	Mend: "Have it listen at 127.0.0.1 or ::1.",
	Undo: "Write the address back.",
	look: func(s *Seen, say func(Finding)) {
		for _, l := range s.Listening {
			if !l.At.Addr().IsUnspecified() || len(l.Peers) == 0 || len(l.Peers) >= mostPeers {
				continue
			}
			if slices.ContainsFunc(l.Peers, func(a netip.Addr) bool { return !a.IsLoopback() && !s.own(a) }) {
				continue
			}
			who := l.Program
			if who == "" {
				who = "a program"
			}
			say(Finding{
				Text:     fmt.Sprintf("%s listens at %s, and only the host itself is connected to it", who, l.At),
				Evidence: []Evidence{found("ss -tn sport = :"+fmt.Sprint(l.At.Port()), "%s, all of them from the host's own addresses", english.Plural(len(l.Peers), "connection"))},
				Mend:     []string{fmt.Sprintf("have it listen at %s", netip.AddrPortFrom(loopbackOf(l.At.Addr()), l.At.Port()))},
			})
		}
	},
}

func loopbackOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}
