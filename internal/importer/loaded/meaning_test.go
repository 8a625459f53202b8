package loaded_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/packet"
	"sluice/internal/base/testseed"
	"sluice/internal/importer"
	"sluice/internal/importer/loaded"
	"sluice/internal/lab/testnet"
	"sluice/internal/prove/reach"
)

// probes are rules that count alone, in the chain of packets from the world; NET is the
// first 24 or 64 bits of their sources.
const probes = `*raw
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A PREROUTING -p tcp --dport 443 -j CT --notrack
COMMIT
*mangle
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A PREROUTING -p udp -j MARK --set-xmark 0x12/0xff
-A PREROUTING -p udp --dport 80 -j MARK --or-mark 0x100
-A PREROUTING -p udp --dport 1023:65535 -j MARK --and-mark 0x10
-A PREROUTING -p tcp --dport 23 -j ACCEPT
-A PREROUTING -p tcp -j MARK --set-mark 0x7
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:probe - [0:0]
:returns - [0:0]
:goes - [0:0]
:never - [0:0]
-A INPUT -s NET -i eth0 -j probe
-A probe -p tcp
-A probe ! -p tcp
-A probe -p 112
-A probe -s SOURCES
-A probe ! -s SOURCES
-A probe -m iprange --src-range RANGE
-A probe -m iprange ! --src-range RANGE
-A probe -i eth+
-A probe ! -i eth0
-A probe -i eth
-A probe -p tcp --dport 22
-A probe -p tcp ! --dport 22
-A probe -p tcp --dport 80:1023
-A probe -p udp --sport :4010 --dport 1024:
-A probe -p tcp -m multiport --dports 21,22:80,443
-A probe -p tcp -m multiport ! --dports 21,22:80,443
-A probe -p udp -m multiport --ports 80,4000:4010
-A probe -p udp -m multiport ! --ports 80,4000:4010
-A probe -p udp -m multiport --sports 4001,4003
-A probe -p tcp --syn
-A probe -p tcp ! --syn
-A probe -p tcp --tcp-flags ALL NONE
-A probe -p tcp --tcp-flags ALL FIN,PSH,URG
-A probe -p tcp ! --tcp-flags SYN,RST SYN
-A probe -m conntrack --ctstate NEW
-A probe -m conntrack ! --ctstate NEW
-A probe -m conntrack --ctstate INVALID,UNTRACKED
-A probe -m state --state NEW,ESTABLISHED
-A probe -m conntrack --ctdir ORIGINAL
-A probe -m conntrack --ctdir REPLY
-A probe -m conntrack --ctstatus CONFIRMED
-A probe -m conntrack --ctorigsrc SOURCES
-A probe -m conntrack ! --ctorigsrc SOURCES
-A probe -m conntrack --ctorigdstport 22:80
-A probe -m mark --mark 0x2/0xf
-A probe -m mark ! --mark 0x7
-A probe -m mark --mark 0x110/0xfff0
-A probe -m mark --mark 0
-A probe -m length --length 0:60
-A probe -m length ! --length 61:70
-A probe -m dscp --dscp 0x0a
-A probe -m dscp ! --dscp 0x0a
-A probe -m addrtype --dst-type LOCAL
-A probe -m addrtype --src-type LOCAL
-A probe -m addrtype ! --dst-type UNICAST,MULTICAST
-A probe -m comment --comment "a \"comment\""
-A probe -j returns
-A probe -p udp -g goes
-A probe -p 112 -j RETURN
-A probe -m comment --comment "neither UDP nor 112"
-A returns -p tcp -j RETURN
-A returns -m comment --comment "not TCP"
-A goes -m comment --comment "UDP"
-A goes -j never
-A never -j RETURN
-A never
COMMIT
`

// more is what one family alone has, behind the last rule of probe.
var more = map[int][]string{
	4: {"-p icmp --icmp-type 8", "-p icmp ! --icmp-type 8", "-p icmp --icmp-type 3/3", "-p icmp --icmp-type any", "-s 192.0.2.8/255.255.255.248"},
	6: {"-p ipv6-icmp --icmpv6-type 128", "-p ipv6-icmp ! --icmpv6-type 128", "-p ipv6-icmp --icmpv6-type 1/4", "-m hl --hl-eq 7", "-m hl --hl-lt 8", "-m hl --hl-gt 63", "-m hl ! --hl-eq 64"},
}

// asksSets are rules that ask sets, behind those.
var asksSets = []string{
	"-m set --match-set nets src", "-m set ! --match-set nets src", "-m set --match-set nets dst", "-m set --match-set ports dst", "-m set --match-set ports src",
	"-m set --match-set both src,dst", "-m set --match-set both src,src", "-m set ! --match-set both src,dst", "-m set --match-set every src",
}

// sets are of the packets' sources, by the same words as probes.
const sets = `create nets hash:net family FAMILY
add nets SOURCES
add nets EXCEPT nomatch
create ports bitmap:port range 0-65535
add ports 22
add ports 4003
create both hash:net,port family FAMILY
add both SOURCES,tcp:22
add both EXCEPT,tcp:22 nomatch
add both SOURCES,udp:80-1024
create single hash:ip family FAMILY
add single SINGLE
create every list:set
add every nets
add every single
`

// nftProbes are such rules of nft.
const nftProbes = `table inet probes {
	set nets { type ADDR; flags interval; elements = { SOURCES, SINGLE } }
	set both { type ADDR . inet_service; flags interval; elements = { SOURCES . 22, SOURCES . 80-443, SINGLE . 21 } }
	set masked { type ADDR; elements = { MASKED } }
	map ports { type inet_proto . inet_service : verdict; elements = { tcp . 22 : jump led, udp . 80 : goto led, tcp . 23 : continue } }
	chain raw { type filter hook prerouting priority -300; tcp dport 443 notrack; }
	chain marks { type filter hook prerouting priority mangle;
		meta l4proto udp meta mark set meta mark & 0xffffff00 | 0x12
		udp dport 80 meta mark set meta mark | 0x100
		udp dport 1023-65535 meta mark set meta mark & 0x10
		tcp dport 23 accept
		meta l4proto tcp meta mark set 0x7
	}
	chain in { type filter hook input priority 10; IPX saddr NET iifname "eth0" counter jump probe; }
	chain led { counter return; }
	chain returns { meta l4proto tcp counter return; counter; }
	chain never { return; counter; }
	chain goes { counter; jump never; }
	chain probe {
		meta l4proto tcp counter
		meta l4proto != tcp counter
		meta l4proto { tcp, udp } th dport { 22, 80-443 } counter
		IPX saddr SOURCES counter
		IPX saddr != SOURCES counter
		IPX saddr RANGE counter
		IPX saddr @nets counter
		IPX saddr != @nets counter
		IPX saddr & MASK == MASKED counter
		IPX saddr & MASK != MASKED counter
		IPX saddr & MASK @masked counter
		IPX saddr . tcp dport @both counter
		IPX saddr . udp sport @both counter
		IPX saddr . tcp dport != @both counter
		IPX saddr . meta l4proto . th dport { SINGLE . tcp . 22, SINGLE . udp . 80, SINGLE . tcp . 443 } counter
		iifname "eth*" counter
		iifname != { "eth0", "lo" } counter
		tcp dport 22 counter
		tcp dport != 22 counter
		tcp dport { 21, 22-80, 443 } counter
		tcp dport != { 21, 22-80, 443 } counter
		tcp dport > 80 counter
		tcp dport <= 80 counter
		udp sport 4000-4010 udp dport >= 80 counter
		tcp flags syn counter
		tcp flags & (fin | syn | rst | ack) == syn counter
		tcp flags & (fin | syn | rst | ack) != syn counter
		tcp flags & (fin | psh | urg) == fin | psh | urg counter
		ct state new counter
		ct state != new counter
		ct state { new, established } counter
		ct state invalid,untracked counter
		ct direction original counter
		ct direction reply counter
		meta l4proto tcp ct original proto-dst 22 counter
		meta mark 0x7 counter
		meta mark != 0x7 counter
		meta mark & 0x0000000f == 0x00000002 counter
		meta mark { 0x112, 0x10 } counter
		meta length 0-60 counter
		meta length != 61-70 counter
		IPX dscp 10 counter
		IPX dscp != 10 counter
		fib daddr type local counter
		fib saddr type local counter
		MORE
		meta l4proto . th dport vmap @ports
		ct state vmap { new : jump led, invalid : jump led }
		tcp dport vmap { 22 : jump led, 80-1023 : jump returns }
		meta nfproto vmap { ipv4 : jump led }
		counter meta l4proto tcp counter
		meta l4proto udp counter udp dport 80 counter
		jump returns
		meta l4proto udp goto goes
		meta l4proto 112 return
		counter
	}
}
`

var moreOfNft = map[int][]string{
	4: {"icmp type echo-request counter", "icmp type != echo-request counter", "icmp code 0 counter", "ip protocol { tcp, 112 } counter"},
	6: {"icmpv6 type echo-request counter", "icmpv6 type != { echo-request, nd-router-advert } counter", "ip6 hoplimit 7 counter", "ip6 hoplimit < 64 counter", "ip6 hoplimit != 7 counter"},
}

// TestMeaning: of each rule, the packets are counted by the kernel that are counted by the
// program which is read of it, for rules that hold each match by itself.
func TestMeaning(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Program("iptables-legacy"), testnet.Program("iptables-nft"), testnet.Program("ipset"), testnet.IPTablesLegacy("filter"), testnet.IPTablesLegacy("raw"))
	for _, flavour := range []string{"legacy", "nft"} {
		for _, family := range []int{4, 6} {
			t.Run(fmt.Sprintf("%s/IPv%d", flavour, family), func(t *testing.T) {
				program := map[int]string{4: "iptables-", 6: "ip6tables-"}[family] + flavour + "-restore"
				text := ""
				for _, rule := range append(slices.Clone(more[family]), asksSets...) {
					text += "-A probe " + rule + "\n"
				}
				first, last, _ := strings.Cut(probes, "-A probe -j returns\n")
				meaning(t, family, "filter/INPUT:1", func(feed func(input, program string, args ...string)) {
					feed(sets, "ipset", "restore")
					feed(first+text+"-A probe -j returns\n"+last, program)
				})
			})
		}
	}
}

// TestMeaningOfNft is the same of rules that nft has loaded.
func TestMeaningOfNft(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Program("nft"), testnet.Nftables)
	for _, family := range []int{4, 6} {
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
			meaning(t, family, "in:1", func(feed func(input, program string, args ...string)) {
				feed(strings.Replace(nftProbes, "MORE", strings.Join(moreOfNft[family], "\n"), 1), "nft", "-f", "-")
			})
		})
	}
}

// meaning loads rules, of which the one named counts every packet, and sends packets.
func meaning(t *testing.T, family int, every string, load func(feed func(input, program string, args ...string))) {
	words := strings.NewReplacer("NET", "192.0.2.0/24", "SOURCES", "192.0.2.16/28", "EXCEPT", "192.0.2.20/31", "SINGLE", "192.0.2.3", "RANGE", "192.0.2.5-192.0.2.30", "FAMILY", "inet", "IPX", "ip", "ADDR", "ipv4_addr", "MASKED", "192.0.2.16", "MASK", "255.255.255.240")
	own, other, gateway, all := "198.51.100.1/24", "198.51.100.2/24", "198.51.100.2", "0.0.0.0/0"
	from := netip.MustParseAddr("192.0.2.0")
	if family == 6 {
		words = strings.NewReplacer("NET", "2001:db8:99::/64", "SOURCES", "2001:db8:99::10/124", "EXCEPT", "2001:db8:99::14/127", "SINGLE", "2001:db8:99::3", "RANGE", "2001:db8:99::5-2001:db8:99::1e", "FAMILY", "inet6", "IPX", "ip6", "ADDR", "ipv6_addr", "MASKED", "2001:db8:99::10", "MASK", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0")
		own, other, gateway, all = "2001:db8:100::1/64", "2001:db8:100::2/64", "2001:db8:100::2", "::/0"
		from = netip.MustParseAddr("2001:db8:99::")
	}
	net := testnet.New(t)
	world, host := net.Unnamed("world"), net.Unnamed("host")
	out, _ := net.Wire(testnet.End{In: world, Device: "eth0", Addresses: []string{other}}, testnet.End{In: host, Device: "eth0", Addresses: []string{own}})
	host.Route(all, gateway)
	load(func(input, program string, args ...string) {
		t.Helper()
		if _, err := host.RunInput(words.Replace(input), program, args...); err != nil {
			t.Fatal(err)
		}
	})

	read := func() *importer.Ruleset {
		t.Helper()
		var rulesets []*importer.Ruleset
		if err := host.Do(func() error {
			var errs []error
			rulesets, errs = loaded.Read(t.Context())
			return errors.Join(errs...)
		}); err != nil {
			t.Fatal(err)
		}
		if len(rulesets) != 1 {
			t.Fatalf("%d rulesets, not one", len(rulesets))
		}
		return rulesets[0]
	}
	before := read()
	for _, u := range before.Unlifted {
		t.Errorf("%+v", u)
	}
	random := testseed.Rand(t)
	packets := 60
	if testing.Short() {
		packets = 20
	}
	for i := range packets {
		p := packet.Packet{
			In: "eth0", Source: from, Destination: netip.MustParsePrefix(own).Addr(), SourceLocal: packet.No, DestinationLocal: packet.Yes, Owner: -1,
			SourcePort: uint16(3995 + random.IntN(20)), Port: []uint16{21, 22, 23, 79, 80, 81, 443, 1023, 1024, 9000}[random.IntN(10)],
			HopLimit: []uint8{7, 64}[random.IntN(2)], DSCP: []uint8{0, 10}[random.IntN(2)],
		}
		for range i + 1 { // a source of its own, so that no packet belongs to a flow of another
			p.Source = p.Source.Next()
		}
		payload := make([]byte, random.IntN(32))
		raw := built(&p, random.IntN(5), []string{"S", "A", "SA", "F", "FPU", "", "PA", "R"}[random.IntN(8)], random.IntN(2), payload)
		if err := out.Send(raw); err != nil {
			t.Fatal(err)
		}
		got := reach.Evaluate(before.Program, p, reach.In)
		want := map[string]uint64{}
		for _, done := range got.Done {
			if id, counts := strings.CutPrefix(done, "count "); counts {
				want[id]++
			}
		}
		// That rule counts first, and the others without a pause.
		after := read()
		for deadline := time.Now().Add(testnet.Patience); after.Rules[every].Count.Packets == before.Rules[every].Count.Packets; after = read() {
			if time.Now().After(deadline) {
				t.Fatalf("packet %d does not come: %s", i, reach.Describe(p))
			}
		}
		after = read()
		for id, rule := range after.Rules {
			if rule.Count == nil {
				continue
			}
			if counted := rule.Count.Packets - before.Rules[id].Count.Packets; counted != want[id] {
				t.Errorf("%s counts %d packets, and the program %d: %s\n%s", id, counted, want[id], rule.Text, reach.Describe(p))
			}
		}
		if len(got.Doubts) > 0 {
			t.Errorf("%s: not known: %v", reach.Describe(p), got.Doubts)
		}
		if t.Failed() {
			return
		}
		before = after
	}
}

// built makes the packet's bytes, and tells it what they are.
func built(p *packet.Packet, kind int, flags string, code int, payload []byte) []byte {
	from, to := netip.AddrPortFrom(p.Source, p.SourcePort), netip.AddrPortFrom(p.Destination, p.Port)
	var raw []byte
	switch kind {
	case 0, 1:
		p.Protocol = packet.TCP
		raw = testnet.TCP(from, to, flags, payload...)
		for i, letter := range "FSRPAU" {
			if strings.ContainsRune(flags, letter) {
				p.Flags |= 1 << i
			}
		}
		if flags != "S" && flags != "A" && flags != "PA" {
			p.State = packet.Invalid // which begins no flow (tcp_new of nf_conntrack_proto_tcp.c)
		}
		if p.Port == 443 {
			p.State = ""
		}
	case 2, 3:
		p.Protocol = packet.UDP
		raw = testnet.UDP(from, to, payload...)
	default:
		p.Protocol, p.SourcePort, p.Port = packet.ICMP, 0, 0
		p.ICMPType = 8
		if p.Source.Is6() {
			p.Protocol, p.ICMPType = packet.ICMPv6, 128
		}
		if code == 0 {
			p.Protocol = 112
			p.ICMPType = 0
			raw = testnet.Protocol(p.Source, p.Destination, 112, payload...)
		} else {
			raw = testnet.Echo(p.Source, p.Destination, 1, 1)
		}
	}
	p.Length = len(raw)
	if p.Source.Is4() {
		raw[1], raw[8] = p.DSCP<<2, p.HopLimit
		binary.BigEndian.PutUint16(raw[10:], 0)
		binary.BigEndian.PutUint16(raw[10:], packet.Checksum(raw[:20]))
	} else {
		raw[0], raw[1], raw[7] = 0x60|p.DSCP>>2, p.DSCP<<6, p.HopLimit
	}
	return raw
}
