package reference

import (
	"fmt"
	"net/netip"
	"testing"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

const (
	fS  = packet.SYN
	fSA = packet.SYN | packet.ACK
	fA  = packet.ACK
	fFA = packet.FIN | packet.ACK
	fR  = packet.RST
	fRA = packet.RST | packet.ACK
)

// sent is a packet of a sequence and what is to happen to it.
type sent struct {
	p     packet.Packet
	way   packet.Way
	state packet.State
	want  policy.Action
	leave string // "source > destination" as it leaves; "": not looked at
}

func follow(t *testing.T, text string, packets ...sent) *Flows {
	t.Helper()
	f := NewFlows(loadIn(t, town, text))
	for i, s := range packets {
		got := f.Packet(s.p, s.way)
		p := got.Packet
		leave := fmt.Sprintf("%s > %s", netip.AddrPortFrom(p.Source, p.SourcePort), netip.AddrPortFrom(p.Destination, p.Port))
		if p.State != s.state || got.Verdict != s.want || s.leave != "" && leave != s.leave {
			t.Errorf("packet %d, %s: %s %s, %s, want %s %s, %s\n%+v", i+1, packetText(s.p), p.State, got.Verdict, leave, s.state, s.want, s.leave, got.Steps)
		}
	}
	return f
}

// tcp is a packet between two ends, by flags.
func tcp(in, from, to string, f uint8) packet.Packet {
	a, b := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	return comes(in, a.Addr().String(), b.Addr().String(), packet.TCP, b.Port(), flags(f), sourcePort(a.Port()))
}

func udp(in, from, to string) packet.Packet {
	p := tcp(in, from, to, 0)
	p.Protocol = packet.UDP
	return p
}

func echo(in, from, to string, id uint16, kind uint8) packet.Packet {
	p := comes(in, from, to, packet.ICMP, 0, sourcePort(0))
	if p.Source.Is6() {
		p.Protocol = packet.ICMPv6
	}
	p.ICMPType, p.ICMPID = kind, id
	return p
}

// aboutPacket is an ICMP error about a packet.
func aboutPacket(in, from, to string, about packet.Packet) packet.Packet {
	p := echo(in, from, to, 0, 3)
	if p.Protocol == packet.ICMPv6 {
		p.ICMPType = 1
	}
	p.Quoted = &about
	return p
}

const (
	openIn  = "version: 1\ninput: { default: drop, rules: [allow ssh, allow udp/53, allow ping] }\noutput: { default: drop }\n"
	openOut = "version: 1\ninput: { default: drop }\noutput: { default: drop, rules: [allow https, allow dns, allow ping] }\n"

	client, server   = "203.0.113.7:40000", "198.51.100.1:22"
	own, far         = "198.51.100.1:41000", "203.0.113.80:443"
	clientIP, hostIP = "203.0.113.7", "198.51.100.1"
)

func TestFlowsOfTCP(t *testing.T) {
	const (
		in, out  = packet.In, packet.Out
		yes, no  = policy.Allow, policy.Drop
		n, e, iv = packet.New, packet.Established, packet.Invalid
	)
	there := func(f uint8) packet.Packet { return tcp("wan0", client, server, f) }
	back := func(f uint8) packet.Packet { return tcp("", server, client, f) }
	t.Run("the life of a connection", func(t *testing.T) {
		f := follow(t, openIn,
			sent{there(fS), in, n, yes, ""}, sent{there(fS), in, n, yes, ""},
			sent{back(fSA), out, e, yes, ""}, sent{back(fSA), out, e, yes, ""}, sent{there(fA), in, e, yes, ""},
			sent{there(fA), in, e, yes, ""}, sent{back(fA), out, e, yes, ""},
			sent{there(fFA), in, e, yes, ""}, sent{back(fA), out, e, yes, ""}, sent{back(fFA), out, e, yes, ""}, sent{there(fA), in, e, yes, ""},
			sent{there(fS), in, n, yes, ""}, sent{back(fSA), out, e, yes, ""})
		if f.Len() != 1 {
			t.Errorf("%d flows are known", f.Len())
		}
	})
	t.Run("what begins nothing", func(t *testing.T) {
		f := follow(t, openIn,
			sent{there(fSA), in, iv, no, ""}, sent{there(fR), in, iv, no, ""}, sent{there(fFA), in, iv, no, ""}, sent{there(0), in, iv, no, ""},
			sent{there(packet.SYN | packet.FIN), in, iv, no, ""}, sent{there(packet.FIN), in, iv, no, ""},
			sent{back(fSA), out, iv, no, ""})
		if f.Len() != 0 {
			t.Errorf("%d flows are known", f.Len())
		}
	})
	t.Run("taken up midway", func(t *testing.T) {
		follow(t, openIn, sent{there(fA), in, n, yes, ""}, sent{back(fA), out, e, yes, ""}, sent{there(fA), in, e, yes, ""})
		f := NewFlows(loadIn(t, town, openIn))
		f.Resumes = false
		if got := f.Packet(there(fA), in); got.Packet.State != iv || got.Verdict != no {
			t.Errorf("with nf_conntrack_tcp_loose=0 an ACK is %s, %s", got.Packet.State, got.Verdict)
		}
	})
	t.Run("what is dropped is not known", func(t *testing.T) {
		f := follow(t, openIn,
			sent{tcp("wan0", client, "198.51.100.1:23", fS), in, n, no, ""}, sent{tcp("", "198.51.100.1:23", client, fSA), out, iv, no, ""},
			sent{tcp("", own, far, fS), out, n, no, ""}, sent{tcp("wan0", far, own, fSA), in, iv, no, ""})
		if f.Len() != 0 {
			t.Errorf("%d flows are known", f.Len())
		}
	})
	t.Run("data before an answer", func(t *testing.T) {
		follow(t, openIn, sent{there(fS), in, n, yes, ""}, sent{there(fA), in, iv, no, ""}, sent{there(fFA), in, iv, no, ""}, sent{back(fSA), out, e, yes, ""}, sent{there(fA), in, e, yes, ""})
	})
	t.Run("an opening that is refused", func(t *testing.T) {
		f := follow(t, openIn, sent{there(fS), in, n, yes, ""}, sent{back(fRA), out, e, yes, ""})
		if f.Len() != 0 {
			t.Errorf("%d flows are known", f.Len())
		}
	})
	t.Run("a reject resets the connection", func(t *testing.T) {
		follow(t, "version: 1\ninput: { default: reject, rules: [allow ssh limit 1/minute] }\noutput: { default: drop }\n",
			sent{there(fS), in, n, yes, ""}, sent{there(fS), in, n, policy.Reject, ""}, sent{there(fA), in, n, policy.Reject, ""})
	})
	t.Run("a reset, and another connection from the same port", func(t *testing.T) {
		follow(t, openIn, sent{there(fS), in, n, yes, ""}, sent{back(fSA), out, e, yes, ""}, sent{there(fA), in, e, yes, ""},
			sent{there(fR), in, e, yes, ""}, sent{there(fA), in, e, yes, ""}, sent{there(fR), in, e, yes, ""}, sent{there(fS), in, n, yes, ""})
	})
	t.Run("the host's own connection", func(t *testing.T) {
		follow(t, openOut, sent{tcp("", own, far, fS), out, n, yes, ""}, sent{tcp("wan0", far, own, fSA), in, e, yes, ""},
			sent{tcp("", own, far, fA), out, e, yes, ""}, sent{tcp("wan0", far, own, fS), in, iv, no, ""}, sent{tcp("wan0", far, "198.51.100.1:41001", fSA), in, iv, no, ""})
	})
	t.Run("invalid packets that the policy leaves to the rules", func(t *testing.T) {
		follow(t, openIn+"tracking: { invalid: allow }\n", sent{there(fR), in, iv, yes, ""}, sent{tcp("wan0", client, "198.51.100.1:23", fR), in, iv, no, ""})
	})
	t.Run("a bypassed service has no flows", func(t *testing.T) {
		u := packet.Untracked
		f := follow(t, openIn+"tracking: { bypass: [ssh] }\n",
			sent{there(fS), in, u, yes, ""}, sent{back(fSA), out, u, yes, ""}, sent{there(fA), in, u, yes, ""}, sent{back(fS), out, u, no, ""}, sent{back(fR), out, u, yes, ""})
		if f.Len() != 0 {
			t.Errorf("%d flows are known", f.Len())
		}
	})
}

func TestFlowsWithoutConnections(t *testing.T) {
	const (
		in, out     = packet.In, packet.Out
		yes, no     = policy.Allow, policy.Drop
		n, e, iv, r = packet.New, packet.Established, packet.Invalid, packet.Related
		resolver    = "203.0.113.80:53"
	)
	t.Run("UDP", func(t *testing.T) {
		follow(t, openOut, sent{udp("wan0", resolver, own), in, n, no, ""}, sent{udp("", own, resolver), out, n, yes, ""}, sent{udp("", own, resolver), out, n, yes, ""},
			sent{udp("wan0", resolver, own), in, e, yes, ""}, sent{udp("", own, resolver), out, e, yes, ""},
			sent{udp("wan0", "203.0.113.81:53", own), in, n, no, ""})
	})
	t.Run("another protocol", func(t *testing.T) {
		there, back := comes("wan0", clientIP, hostIP, 112, 0, sourcePort(0)), comes("", hostIP, clientIP, 112, 0, sourcePort(0))
		follow(t, "version: 1\ninput: { default: drop, rules: [allow vrrp] }\noutput: { default: drop }\n",
			sent{back, out, n, no, ""}, sent{there, in, n, yes, ""}, sent{back, out, e, yes, ""}, sent{there, in, e, yes, ""})
	})
	t.Run("echo by id", func(t *testing.T) {
		follow(t, openOut, sent{echo("", hostIP, clientIP, 7, 8), out, n, yes, ""}, sent{echo("wan0", clientIP, hostIP, 8, 0), in, iv, no, ""},
			sent{echo("wan0", clientIP, hostIP, 7, 0), in, e, yes, ""}, sent{echo("", hostIP, clientIP, 7, 8), out, e, yes, ""},
			sent{echo("wan0", clientIP, hostIP, 7, 8), in, n, no, ""})
		follow(t, openOut, sent{echo("", "2001:db8:100::1", "2001:db8:99::7", 7, 128), out, n, yes, ""}, sent{echo("wan0", "2001:db8:99::7", "2001:db8:100::1", 7, 129), in, e, yes, ""})
	})
	t.Run("questions are decided one by one", func(t *testing.T) {
		follow(t, "version: 1\ninput: { default: drop, rules: [allow ping from 203.0.113.7] }\noutput: { default: drop }\n",
			sent{echo("wan0", clientIP, hostIP, 7, 8), in, n, yes, ""}, sent{echo("", hostIP, clientIP, 7, 0), out, e, yes, ""}, sent{echo("wan0", clientIP, hostIP, 7, 8), in, e, yes, ""})
	})
	t.Run("errors", func(t *testing.T) {
		asked := udp("", own, resolver)
		follow(t, openOut, sent{asked, out, n, yes, ""},
			sent{aboutPacket("wan0", "203.0.113.1", hostIP, asked), in, r, yes, ""},
			sent{aboutPacket("wan0", "203.0.113.1", "198.51.100.9", asked), in, iv, no, ""},
			sent{aboutPacket("wan0", "203.0.113.1", hostIP, udp("", own, "203.0.113.99:53")), in, iv, no, ""},
			sent{asked, out, n, yes, ""})
	})
	t.Run("neighbours are not tracked", func(t *testing.T) {
		p := echo("wan0", "fe80::9", "fe80::1", 0, 135)
		p.HopLimit = 255
		follow(t, openOut, sent{p, in, packet.Untracked, yes, ""})
	})
}

func TestFlowsOfNAT(t *testing.T) {
	const (
		in, through = packet.In, packet.Through
		yes, no     = policy.Allow, policy.Drop
		n, e, iv, r = packet.New, packet.Established, packet.Invalid, packet.Related
		inner       = "10.20.0.5:40000"
	)
	nat := func(lines string) string { return sides + "nat:\n" + lines }
	t.Run("masquerade and back", func(t *testing.T) {
		text := nat("  - masquerade from lan out wan\n") + "forward: { default: drop, rules: [allow https from lan to wan] }\ninput: { default: drop }\n"
		syn := tcp("lan0", inner, far, fS)
		left := tcp("", "198.51.100.1:40000", far, fS)
		follow(t, text,
			sent{syn, through, n, yes, "198.51.100.1:40000 > 203.0.113.80:443"},
			sent{syn, through, n, yes, "198.51.100.1:40000 > 203.0.113.80:443"},
			sent{tcp("wan0", far, "198.51.100.1:40000", fSA), in, e, yes, "203.0.113.80:443 > 10.20.0.5:40000"},
			sent{tcp("lan0", inner, far, fA), through, e, yes, "198.51.100.1:40000 > 203.0.113.80:443"},
			sent{aboutPacket("wan0", "203.0.113.1", hostIP, left), in, r, yes, "203.0.113.1:0 > 10.20.0.5:0"},
			sent{tcp("wan0", far, "198.51.100.1:40001", fSA), in, iv, no, ""})
	})
	t.Run("redirect and back", func(t *testing.T) {
		text := nat("  - redirect tcp/8080 in wan to 10.20.0.5:80\n") + "forward: { default: drop, rules: [allow http to 10.20.0.5] }\ninput: { default: drop }\n"
		got := tcp("", client, "10.20.0.5:80", fS)
		answer := tcp("", "10.20.0.5:80", client, fSA)
		follow(t, text,
			sent{tcp("wan0", client, "198.51.100.1:8080", fS), in, n, yes, "203.0.113.7:40000 > 10.20.0.5:80"},
			sent{tcp("lan0", "10.20.0.5:80", client, fSA), through, e, yes, "198.51.100.1:8080 > 203.0.113.7:40000"},
			sent{tcp("wan0", client, "198.51.100.1:8080", fA), in, e, yes, "203.0.113.7:40000 > 10.20.0.5:80"},
			sent{aboutPacket("lan0", "10.20.0.5", clientIP, got), through, r, yes, "198.51.100.1:0 > 203.0.113.7:0"},
			sent{aboutPacket("wan0", "203.0.113.1", hostIP, tcp("", "198.51.100.1:8080", client, fSA)), in, r, yes, "203.0.113.1:0 > 10.20.0.5:0"},
			sent{aboutPacket("wan0", "203.0.113.1", hostIP, answer), in, iv, no, ""})
	})
	t.Run("redirect to the host and back", func(t *testing.T) {
		text := nat("  - redirect tcp/2222 in wan to :22\n") + "input: { default: drop, rules: [allow published tcp/2222] }\noutput: { default: drop }\n"
		follow(t, text,
			sent{tcp("wan0", client, "198.51.100.1:2222", fS), in, n, yes, "203.0.113.7:40000 > 198.51.100.1:22"},
			sent{tcp("", "198.51.100.1:22", client, fSA), packet.Out, e, yes, "198.51.100.1:2222 > 203.0.113.7:40000"},
			sent{tcp("wan0", "203.0.113.8:1", "198.51.100.1:22", fS), in, n, no, ""})
	})
	t.Run("map, from both sides", func(t *testing.T) {
		text := nat("  - map 198.51.100.32/28 to 10.20.0.0/28\n")
		follow(t, text,
			sent{udp("wan0", client, "198.51.100.37:53"), through, n, yes, "203.0.113.7:40000 > 10.20.0.5:53"},
			sent{udp("lan0", "10.20.0.5:53", client), through, e, yes, "198.51.100.37:53 > 203.0.113.7:40000"},
			sent{udp("lan0", "10.20.0.5:99", client), through, n, yes, "198.51.100.37:99 > 203.0.113.7:40000"},
			sent{udp("wan0", client, "198.51.100.37:99"), through, e, yes, "203.0.113.7:40000 > 10.20.0.5:99"})
	})
	t.Run("hairpin and back", func(t *testing.T) {
		text := nat("  - redirect tcp/8080 in wan to 10.20.0.5:80\n")
		follow(t, text,
			sent{tcp("lan0", "10.20.0.6:40000", "198.51.100.1:8080", fS), in, n, yes, "10.20.0.1:40000 > 10.20.0.5:80"},
			sent{tcp("lan0", "10.20.0.5:80", "10.20.0.1:40000", fSA), in, e, yes, "198.51.100.1:8080 > 10.20.0.6:40000"})
	})
	t.Run("a stateless map has no flows", func(t *testing.T) {
		text := nat("  - map 198.51.100.32/28 to 10.20.0.0/28 stateless\n") + "forward: { default: drop, rules: [allow http to 10.20.0.5] }\n"
		u := packet.Untracked
		f := follow(t, text,
			sent{tcp("wan0", client, "198.51.100.37:80", fS), through, u, yes, "203.0.113.7:40000 > 10.20.0.5:80"},
			sent{tcp("lan0", "10.20.0.5:80", client, fSA), through, u, yes, "198.51.100.37:80 > 203.0.113.7:40000"},
			sent{tcp("lan0", "10.20.0.5:80", client, fS), through, u, no, ""})
		if f.Len() != 0 {
			t.Errorf("%d flows are known", f.Len())
		}
	})
}
