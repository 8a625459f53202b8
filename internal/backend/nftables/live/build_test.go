package live

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"sluice/internal/base/packet"
	"sluice/internal/system/kernel/nftrace"
)

// decode reads a packet with another implementation, which looks at the checksums too.
func decode(t *testing.T, b []byte) gopacket.Packet {
	t.Helper()
	first := layers.LayerTypeIPv4
	if b[0]>>4 == 6 {
		first = layers.LayerTypeIPv6
	}
	p := gopacket.NewPacket(b, first, gopacket.Default)
	if p.ErrorLayer() != nil {
		t.Fatalf("%x: %v", b, p.ErrorLayer().Error())
	}
	for _, layer := range p.Layers() {
		l, is := layer.(interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		})
		if !is {
			continue
		}
		if err := l.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func TestBuild(t *testing.T) {
	four := packet.Packet{Source: netip.MustParseAddr("192.0.2.2"), Destination: netip.MustParseAddr("192.0.2.1"), SourcePort: 40000, Port: 443}
	six := packet.Packet{Source: netip.MustParseAddr("2001:db8::2"), Destination: netip.MustParseAddr("2001:db8::1"), SourcePort: 40000, Port: 443}
	for _, base := range []packet.Packet{four, six} {
		icmp := uint8(packet.ICMP)
		if base.Source.Is6() {
			icmp = packet.ICMPv6
		}
		for _, change := range []func(p *packet.Packet){
			func(p *packet.Packet) { p.Protocol, p.Flags = packet.TCP, packet.SYN },
			func(p *packet.Packet) {
				p.Protocol, p.Flags, p.Length, p.DSCP, p.HopLimit = packet.TCP, packet.ACK, 999, 46, 3
			},
			func(p *packet.Packet) { p.Protocol = packet.UDP },
			func(p *packet.Packet) { p.Protocol, p.Length = packet.UDP, 1400 },
			func(p *packet.Packet) { p.Protocol = packet.SCTP },
			func(p *packet.Packet) { p.Protocol, p.ICMPType = icmp, 128 },
			func(p *packet.Packet) { p.Protocol, p.ICMPType, p.ICMPCode = icmp, 3, 1 },
		} {
			p := base
			change(&p)
			b := build(p, sound)
			if p.Length > 0 && len(b) != p.Length {
				t.Errorf("%+v has %d bytes", p, len(b))
			}
			got := decode(t, b)
			if err, problems := got.VerifyChecksums(); err != nil || len(problems) > 0 {
				if p.Protocol != packet.SCTP { // whose checksum is another one
					t.Errorf("%+v: checksums %v, %v", p, problems, err)
				}
			}
			read, ok := rewritten(packet.Packet{Protocol: p.Protocol, Flags: p.Flags}, b[:headerSize(p)], b[headerSize(p):])
			if !ok || read.Source != p.Source || read.Destination != p.Destination || p.HasPorts() && (read.Port != p.Port || read.SourcePort != p.SourcePort) || read.DSCP != p.DSCP {
				t.Errorf("%+v is read as %+v", p, read)
			}
			if p.Protocol == packet.UDP || p.Protocol == icmp {
				broken := decode(t, build(p, badChecksum))
				if err, problems := broken.VerifyChecksums(); err != nil || len(problems) == 0 {
					t.Errorf("%+v with a bad checksum: %v, %v", p, problems, err)
				}
			}
		}
	}
}

// Of another protocol the length is as asked.
func TestBuildAny(t *testing.T) {
	p := packet.Packet{Source: netip.MustParseAddr("192.0.2.2"), Destination: netip.MustParseAddr("192.0.2.1"), Protocol: 112, Length: 100}
	if b := build(p, sound); len(b) != 100 || b[9] != 112 || packet.Checksum(b[:20]) != 0 {
		t.Errorf("%x", b)
	}
}

func TestBuildFragment(t *testing.T) {
	p := packet.Packet{Source: netip.MustParseAddr("192.0.2.2"), Destination: netip.MustParseAddr("192.0.2.1"), Protocol: packet.UDP, Fragment: true}
	ip, is := decode(t, build(p, sound)).Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	if !is || ip.FragOffset == 0 {
		t.Errorf("IPv4: %+v", ip)
	}
	p.Source, p.Destination = netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("2001:db8::1")
	six, is := decode(t, build(p, sound)).Layer(layers.LayerTypeIPv6Fragment).(*layers.IPv6Fragment)
	if !is || six.FragmentOffset == 0 {
		t.Errorf("IPv6: %+v", six)
	}
}

func TestAnswers(t *testing.T) {
	asked := packet.Packet{Source: netip.MustParseAddr("192.0.2.2"), Destination: netip.MustParseAddr("192.0.2.1"), Protocol: packet.TCP, SourcePort: 1, Port: 2}
	back := packet.Packet{Source: asked.Destination, Destination: asked.Source, Protocol: packet.TCP, SourcePort: 2, Port: 1, Flags: packet.RST | packet.ACK}
	icmp := packet.Packet{Source: asked.Destination, Destination: asked.Source, Protocol: packet.ICMP, ICMPType: 3, ICMPCode: 13}
	data, other := back, back
	data.Flags = packet.ACK
	other.Destination = netip.MustParseAddr("192.0.2.3")
	for _, c := range []struct {
		p    packet.Packet
		want string
	}{{back, "a TCP reset"}, {icmp, "ICMP administratively prohibited"}, {data, ""}, {other, ""}} {
		if got := describeAnswer(asked, build(c.p, sound)); got != c.want {
			t.Errorf("%+v is %q, want %q", c.p, got, c.want)
		}
	}
}

const listed = `table inet sluice { # handle 1
	counter ban_banned { # handle 2
		comment "web.yaml:5 ban: banned"
		packets 0 bytes 0
	}

	set s { # handle 3
		type ipv4_addr
	}

	chain input { # handle 4
		comment "of the host"
		type filter hook input priority filter; policy drop;
		ip saddr @s counter name "ban_banned" drop comment "from ban.banned" # handle 7
		tcp dport { 22, 80 } accept comment "web.yaml:9 allow [ssh, http]" # handle 9
		log prefix "a # handle 3" # handle 11
		ip saddr { 10.0.0.1, 10.0.0.2,
			   10.0.0.3 } drop # handle 12
	}
}
table ip other { # handle 5
	chain input { # handle 1
		counter packets 1 bytes 60 drop comment "web.yaml:9 is not Sluice's" # handle 2
	}
}
`

func TestTexts(t *testing.T) {
	l := parseTexts(listed)
	want := map[rulePlace]ruleText{
		{"inet", "sluice", "input", 7}:  {`ip saddr @s counter name "ban_banned" drop`, "from ban.banned", 1},
		{"inet", "sluice", "input", 9}:  {"tcp dport { 22, 80 } accept", "web.yaml:9 allow [ssh, http]", 2},
		{"inet", "sluice", "input", 11}: {`log prefix "a # handle 3"`, "", 3},
		{"inet", "sluice", "input", 12}: {"ip saddr { 10.0.0.1, 10.0.0.2, 10.0.0.3 } drop", "", 4},
		{"ip", "other", "input", 2}:     {"counter packets 1 bytes 60 drop", "web.yaml:9 is not Sluice's", 1},
	}
	if diff := cmp.Diff(want, l.rules, cmp.AllowUnexported(rulePlace{}, ruleText{})); diff != "" {
		t.Error(diff)
	}
	for handle, line := range map[uint64]string{7: "web.yaml:5 ban: banned", 9: "web.yaml:9 allow [ssh, http]", 11: ""} {
		if got, _ := l.line("inet", "sluice", l.rules[rulePlace{"inet", "sluice", "input", handle}]); got != line {
			t.Errorf("handle %d is of line %q, want %q", handle, got, line)
		}
	}
}

func TestLegacyHits(t *testing.T) {
	before := "# at one\n*filter\n:INPUT DROP [0:0]\n:GUARD - [0:0]\n[0:0] -A INPUT -p tcp -j GUARD\n[5:300] -A INPUT -j ACCEPT\n[0:0] -A GUARD -p tcp -m comment --comment \"a -j b\" -j DROP\nCOMMIT\n"
	after := "# at two\n*filter\n:INPUT DROP [0:0]\n:GUARD - [0:0]\n[1:60] -A INPUT -p tcp -j GUARD\n[5:300] -A INPUT -j ACCEPT\n[1:60] -A GUARD -p tcp -m comment --comment \"a -j b\" -j DROP\nCOMMIT\n"
	steps := legacySteps(legacyHits([2]string{before, ""}, [2]string{after, ""}))
	if len(steps) != 2 || steps[0].Verdict != "GUARD" || steps[1].Verdict != "drop" || steps[1].Hook != "input" || steps[1].Chain != "GUARD" {
		t.Errorf("%+v", steps)
	}
	if steps := legacySteps(legacyHits([2]string{before}, [2]string{before})); len(steps) != 0 {
		t.Errorf("nothing was counted: %+v", steps)
	}
}

func FuzzTexts(f *testing.F) {
	f.Add(listed)
	f.Add("table ip t {\n\tchain c {\n\t\tdrop # handle 99999999999999999999\n\t}\n}")
	f.Fuzz(func(t *testing.T, text string) {
		l := parseTexts(text)
		for p, r := range l.rules {
			if p.chain == "" || p.table == "" {
				t.Errorf("%+v without a chain", p)
			}
			_, _ = l.line(p.family, p.table, r)
		}
	})
}

func FuzzLegacyHits(f *testing.F) {
	f.Add("*filter\n[0:0] -A INPUT -j DROP", "*filter\n[1:60] -A INPUT -j DROP")
	f.Add(":INPUT DROP [0:0]", ":INPUT DROP [1:1]")
	f.Fuzz(func(_ *testing.T, before, after string) {
		legacySteps(legacyHits([2]string{before, before}, [2]string{after, after}))
	})
}

func FuzzHeaders(f *testing.F) {
	p := packet.Packet{Source: netip.MustParseAddr("192.0.2.2"), Destination: netip.MustParseAddr("192.0.2.1"), Protocol: packet.TCP}
	f.Add(build(p, sound), []byte{1, 2, 3, 4})
	f.Add([]byte{0x4f}, []byte{})
	f.Fuzz(func(_ *testing.T, network, transport []byte) {
		rewritten(p, network, transport)
		headed(nftrace.Event{Network: network, Transport: transport})
		describeAnswer(p, network)
	})
}
