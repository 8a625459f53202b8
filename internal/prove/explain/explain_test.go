package explain

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/program/mutants"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/reference"
	"sluice/internal/system/host"
)

// Whatever the flags say, there is a packet or an error, and a packet has all that
// the judges ask.
func FuzzAskedPacket(f *testing.F) {
	for _, words := range []string{
		"tcp|8.8.8.8||443||||||||", "udp|192.0.2.1|2001:db8::1|dns|53|eth0|||||", "|2001:db8::1||||||packet-too-big||||", "proto/112|10.20.0.5|203.0.113.1|||||||||",
		"||203.0.113.25|smtp||||||25|output|", "tcp|::ffff:192.0.2.1||http||||||||established",
	} {
		f.Add(words)
	}
	facts := host.Facts{Known: true, DefaultRoute: []string{"eth0"}, Interfaces: host.Facts{}.Interfaces}
	p, err := policy.Parse("policy.yaml", []byte("version: 1\n"))
	if err != nil {
		f.Fatal(err)
	}
	r, err := resolve.Resolve(p, resolve.Options{Facts: facts})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, words string) {
		w := append(strings.Split(words, "|"), make([]string, 12)...)
		q := Question{
			Protocol: w[0], Source: w[1], Destination: w[2], SourcePort: w[4], Port: w[3], In: w[5], Out: w[6],
			ICMPType: w[7], Flags: w[8], User: w[9], Hook: w[10], State: w[11],
		}
		got, way, err := asked{q, Subject{Resolved: r, Route: facts.Route}}.read()
		if err != nil {
			return
		}
		if !got.Source.IsValid() || !got.Destination.IsValid() || got.Source.Is4() != got.Destination.Is4() || way == "" || got.HasPorts() && (got.Port == 0 || got.SourcePort == 0) {
			t.Errorf("%q makes %+v", words, got)
		}
	})
}

// Each pass that is wrong on purpose is told of as a bug in Sluice, by some
// packet; without one, no packet is.
func TestExplainTellsOfWrongPasses(t *testing.T) {
	p, err := policy.Parse("policy.yaml", []byte(`version: 1
sets:
  office: [203.0.113.0/25, "2001:db8:77::/48"]
input:
  default: drop
  rules:
    - drop ssh from 203.0.113.9
    - allow ssh from office
    - allow https
`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := resolve.Resolve(p, resolve.Options{Facts: host.Facts{Known: true}})
	if err != nil {
		t.Fatal(err)
	}
	var packets []packet.Packet
	for _, from := range []string{"203.0.113.9", "203.0.113.10", "203.0.113.200", "198.51.100.7", "2001:db8:77::7", "2001:db8:76::7", "2001:db8:1::7"} {
		for _, port := range []uint16{22, 443, 25} {
			for _, s := range []packet.State{"", packet.Established} {
				a := netip.MustParseAddr(from)
				to := netip.MustParseAddr("198.51.100.1")
				if a.Is6() {
					to = netip.MustParseAddr("2001:db8:100::1")
				}
				packets = append(packets, packet.Packet{
					In: "eth0", Source: a, Destination: to, Protocol: packet.TCP, SourcePort: firstPort, Port: port, Flags: packet.SYN,
					State: s, SourceLocal: packet.No, DestinationLocal: packet.Yes, Owner: -1, HopLimit: 64,
				})
			}
		}
	}
	disagree := func(prog *program.Program) (n int) {
		for _, p := range packets {
			switch got := compareProgram(prog, p, packet.In, reference.Explain(r, p, packet.In)); {
			case got.Agrees == nil:
				t.Errorf("%v cannot be compared: %s", p, got.Says)
			case !*got.Agrees:
				n++
			}
		}
		return n
	}
	for _, pass := range append([]mutants.Pass{{Name: "none", Run: func(*program.Program) bool { return true }}}, mutants.Passes...) {
		prog, err := compile.Compile(r)
		if err == nil {
			err = optimize.Run(prog, optimize.Options{})
		}
		if err != nil {
			t.Fatal(err)
		}
		if !pass.Run(prog) {
			t.Errorf("%s changes nothing", pass.Name)
			continue
		}
		if n := disagree(prog); (n > 0) != (pass.Name != "none") {
			t.Errorf("%s: %d of %d packets differ", pass.Name, n, len(packets))
		}
	}
}

// Bans by command and by limits are no part of a policy. They drop what the kernel drops by
// them, whatever the policy says.
func TestExplainKnowsBans(t *testing.T) {
	p, err := policy.Parse("policy.yaml", []byte("version: 1\nnever-ban: [203.0.113.9]\ninput: { default: reject, rules: [allow tcp/80, allow icmp] }\n"))
	if err != nil {
		t.Fatal(err)
	}
	open, err := policy.Parse("policy.yaml", []byte("version: 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	set := func(prefix string) addrset.Set { return addrset.FromPrefixes(netip.MustParsePrefix(prefix)) }
	list := []Ban{
		{What: "203.0.113.0/28", Drops: set("203.0.113.0/28"), By: "by command", Reason: "ssh: scans"},
		{What: "192.0.2.7", Drops: set("192.0.2.7/32"), By: "by a limit", ByLimit: true, Until: time.Date(2031, 2, 3, 4, 5, 6, 0, time.Local)},
		{What: "192.0.2.8", Drops: set("192.0.2.8/32"), By: "by a limit", ByLimit: true, Elsewhere: true},
		{What: "2001:db8::/32", Drops: set("2001:db8::/32"), By: "by the fleet", Fleet: true},
	}
	command, limit := "203.0.113.5 is banned by command, as part of 203.0.113.0/28, until it is lifted (reason: ssh: scans)", "192.0.2.7 is banned by a limit until 2031-02-03 04:05:06"
	for _, c := range []struct {
		of            *policy.Policy
		from          string
		p             packet.Packet
		banned, lifts string
	}{
		{p, "203.0.113.5", packet.Packet{Protocol: packet.TCP, Port: 80}, command, "`lift 203.0.113.0/28` lifts the ban"},
		{p, "203.0.113.5", packet.Packet{Protocol: packet.TCP, Port: 81}, command, "`lift 203.0.113.0/28` lifts the ban"}, // rejected without it
		{p, "203.0.113.5", packet.Packet{Protocol: packet.TCP, Port: 80, State: packet.Established}, command, "`lift 203.0.113.0/28` lifts the ban"},
		{p, "203.0.113.9", packet.Packet{Protocol: packet.TCP, Port: 80}, "", ""}, // never banned
		{p, "198.51.100.7", packet.Packet{Protocol: packet.TCP, Port: 80}, "", ""},
		{p, "192.0.2.7", packet.Packet{Protocol: packet.TCP, Port: 80}, limit, "`lift 192.0.2.7` lifts the ban"},
		{p, "192.0.2.7", packet.Packet{Protocol: packet.TCP, Port: 81}, limit, "`lift 192.0.2.7` lifts the ban"},
		{p, "192.0.2.7", packet.Packet{Protocol: packet.TCP, Port: 80, State: packet.Established}, "", ""}, // it goes on
		{p, "192.0.2.7", packet.Packet{Protocol: packet.TCP, Port: 80, State: packet.Related}, limit, "`lift 192.0.2.7` lifts the ban"},
		{p, "192.0.2.7", packet.Packet{Protocol: packet.ICMP, ICMPType: 8, State: packet.Established}, limit, "`lift 192.0.2.7` lifts the ban"}, // each is decided
		{p, "192.0.2.7", packet.Packet{Protocol: packet.ICMP, ICMPType: 3, State: packet.Related}, "", ""},
		{p, "192.0.2.8", packet.Packet{Protocol: packet.TCP, Port: 80}, "", "192.0.2.8 is banned by a limit until it is lifted, which this policy alone does not show: what it begins is dropped; `lift 192.0.2.8` lifts the ban"},
		{p, "2001:db8::5", packet.Packet{Protocol: packet.TCP, Port: 80}, "2001:db8::5 is banned by the fleet, as part of 2001:db8::/32, until it is lifted", "`sluice-controller unban 2001:db8::/32` lifts the ban, on a controller of the fleet"},
		{p, "2001:db8::5", packet.Packet{Protocol: packet.ICMPv6, ICMPType: 135, HopLimit: 255}, "", ""}, // neighbour discovery
		{open, "203.0.113.5", packet.Packet{Protocol: packet.TCP, Port: 80}, "", ""},                     // nothing looks bans up
	} {
		r, err := resolve.Resolve(c.of, resolve.Options{Facts: host.Facts{Known: true}})
		if err != nil {
			t.Fatal(err)
		}
		e := Followed{Subject: Subject{Resolved: r, Bans: list, Words: Words{Unban: func(what string) string { return "lift " + what }}}}
		e.Packet = c.p
		e.Packet.In, e.Packet.Owner, e.Packet.Source, e.Packet.Destination = "eth0", -1, netip.MustParseAddr(c.from), netip.MustParseAddr("198.51.100.1")
		if e.Packet.Source.Is6() {
			e.Packet.Destination = netip.MustParseAddr("2001:db8:1::1")
		}
		e.Path = reference.Explain(r, e.Packet, packet.In)
		e.findBan()
		said := ""
		if e.Banned() {
			said = e.Ban.String()
			if steps := e.untilBan(); steps[len(steps)-1].Reason != said || e.Decided().Verdict != policy.Drop {
				t.Errorf("%s %+v: the step says %q", c.from, c.p, steps[len(steps)-1].Reason)
			}
		}
		if note := e.banned(); said != c.banned || note != c.lifts {
			t.Errorf("%s %+v: %q, note %q, want %q, %q", c.from, c.p, said, note, c.banned, c.lifts)
		}
	}
}
