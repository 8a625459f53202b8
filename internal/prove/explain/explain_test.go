package explain

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/bans"
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

// A ban by command is no part of a policy, and is told of where the policy lets the
// packet pass and the host does not.
func TestExplainNotesBansByCommand(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	p, err := policy.Parse("policy.yaml", []byte("version: 1\nnever-ban: [203.0.113.9]\ninput: { default: allow }\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := resolve.Resolve(p, resolve.Options{Facts: host.Facts{Known: true}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bans.Open(dir).Append(bans.EntryOf([]bans.Ban{
		{What: addrset.PrefixRange(netip.MustParsePrefix("203.0.113.0/28")), Since: now, Reason: "ssh: scans"},
		{What: addrset.PrefixRange(netip.MustParsePrefix("203.0.113.77/32")), Since: now.Add(-time.Hour), Until: now.Add(-time.Minute)},
	}, now, bans.Author{})); err != nil {
		t.Fatal(err)
	}
	list, err := bans.Open(dir).Read()
	if err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]string{
		"203.0.113.5":  "203.0.113.5 is banned by command (203.0.113.0/28), for ssh: scans: with any policy loaded that has rules, this host drops the packet, until sluice unban 203.0.113.0/28",
		"203.0.113.9":  "", // never banned
		"203.0.113.77": "", // its time is up
		"198.51.100.7": "",
	} {
		e := Followed{Subject: Subject{Resolved: r, Bans: bans.Live(list.Bans, now), Words: Words{Unban: func(what string) string { return "sluice unban " + what }}}}
		e.Packet = packet.Packet{In: "eth0", Source: netip.MustParseAddr(from), Destination: netip.MustParseAddr("198.51.100.1"), Protocol: packet.UDP, SourcePort: 1, Port: 53, Owner: -1}
		e.Path = reference.Explain(r, e.Packet, packet.In)
		by, until := e.bannedByCommand()
		if got := by + until; got != want {
			t.Errorf("%s: %q, want %q", from, got, want)
		}
		if steps := e.untilBan(by); want != "" && !strings.HasSuffix(steps[len(steps)-1].Reason, ", for ssh: scans") {
			t.Errorf("%s: the step says %q", from, steps[len(steps)-1].Reason)
		}
		e.Bans = nil
		if by, _ := e.bannedByCommand(); by != "" {
			t.Errorf("%s, for another host: %q", from, by)
		}
	}
}
