package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/testnet"
	"sluice/internal/program"
)

// A construct is one thing that a program can say. Each has to load, and to
// read back as what was loaded, on the nft and kernel at hand.
type construct struct {
	name    string
	kind    program.HookKind // of the chain; "" is Input
	phase   program.Phase    // "" is Filter
	match   []program.Condition
	actions []program.Action // nil: accept
	want    string           // first rule of the chain, as text
}

func ranges(pairs ...uint64) []program.NumberRange {
	var out []program.NumberRange
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, program.NumberRange{From: pairs[i], To: pairs[i+1]})
	}
	return out
}

func exactly(values ...uint64) []program.NumberRange {
	var out []program.NumberRange
	for _, v := range values {
		out = append(out, program.NumberRange{From: v, To: v})
	}
	return out
}

func addressRanges(texts ...string) []addrset.Range {
	return addrset.MustParse(texts...).Ranges()
}

// countedApart is each text as an element of its own.
func countedApart(texts ...string) []program.Element {
	var out []program.Element
	for _, text := range texts {
		out = append(out, program.Element{Parts: []program.Value{{Addresses: addressRanges(text)[0]}}})
	}
	return out
}

func protocolIs(p ...uint64) program.Condition {
	return program.Condition{Field: program.Protocol, Numbers: exactly(p...)}
}

func not(c program.Condition) program.Condition {
	c.Not = !c.Not
	return c
}

func numbersOf(f program.Field, r []program.NumberRange) program.Condition {
	return program.Condition{Field: f, Numbers: r}
}

func namesOf(f program.Field, n ...string) program.Condition {
	return program.Condition{Field: f, Names: n}
}

func addressesOf(f program.Field, texts ...string) program.Condition {
	return program.Condition{Field: f, Addresses: addressRanges(texts...)}
}

func setOn(f program.Field, id string, key ...program.Field) program.Condition {
	return program.Condition{Field: f, Set: id, SetKey: key}
}

type conditions = []program.Condition

type actions = []program.Action

var (
	v4 = numbersOf(program.Family, exactly(4))
	v6 = numbersOf(program.Family, exactly(6))
)

// constructs is everything that this backend can say.
var constructs = []construct{
	{name: "interface", match: conditions{namesOf(program.InInterface, "eth0")}, want: `iifname "eth0" accept`},
	{name: "interface with wildcard", match: conditions{namesOf(program.InInterface, "wg*")}, want: `iifname "wg*" accept`},
	{name: "interfaces with wildcard", match: conditions{namesOf(program.InInterface, "wg*", "eth0", "br-lan.5")}, want: `iifname { "br-lan.5", "eth0", "wg*" } accept`},
	{name: "not these interfaces", match: conditions{not(namesOf(program.InInterface, "wg*", "eth0"))}, want: `iifname != { "eth0", "wg*" } accept`},
	{name: "every interface", match: conditions{namesOf(program.InInterface, "*")}, want: `accept`},
	{name: "interface named by a keyword", match: conditions{namesOf(program.InInterface, "accept", "if", "eth0:1")}, want: `iifname { "accept", "eth0:1", "if" } accept`},
	{name: "outgoing interface", kind: program.Forward, match: conditions{namesOf(program.OutInterface, "eth0")}, want: `oifname "eth0" accept`},
	{name: "before a moment", match: conditions{program.Before(time.Date(2027, 1, 31, 18, 0, 0, 0, time.UTC))}, want: `meta time < 1801418400 accept`},
	{name: "from a moment on", match: conditions{not(program.Before(time.Date(2027, 1, 31, 18, 0, 0, 0, time.UTC)))}, want: `meta time >= 1801418400 accept`},
	{name: "link type", match: conditions{numbersOf(program.LinkType, exactly(1, 772))}, want: `meta iiftype { 1, 772 } accept`},
	{name: "family 4", match: conditions{v4}, want: `meta nfproto ipv4 accept`},
	{name: "family 6", match: conditions{v6}, want: `meta nfproto ipv6 accept`},
	{name: "not family 6", match: conditions{not(v6)}, want: `meta nfproto ipv4 accept`},
	{name: "address", match: conditions{addressesOf(program.Source, "192.0.2.1")}, want: `ip saddr 192.0.2.1 accept`},
	{name: "prefix", match: conditions{addressesOf(program.Source, "192.0.2.0/24")}, want: `ip saddr 192.0.2.0/24 accept`},
	{name: "range", match: conditions{addressesOf(program.Source, "192.0.2.1-192.0.2.5")}, want: `ip saddr 192.0.2.1-192.0.2.5 accept`},
	{name: "IPv6 prefix", match: conditions{addressesOf(program.Destination, "2001:db8::/32")}, want: `ip6 daddr 2001:db8::/32 accept`},
	{name: "addresses of both families", match: conditions{addressesOf(program.Source, "192.0.2.1", "198.51.100.0/24", "2001:db8::1")}, want: `ip saddr { 192.0.2.1, 198.51.100.0/24 } accept`},
	{name: "not an address", match: conditions{not(addressesOf(program.Source, "192.0.2.1"))}, want: `ip saddr != 192.0.2.1 accept`},
	{name: "many addresses", match: conditions{addressesOf(program.Source, many(40)...)}, want: `ip saddr @addresses4_* accept`},
	{name: "every IPv4 address", match: conditions{addressesOf(program.Source, "0.0.0.0/0")}, want: `meta nfproto ipv4 accept`},
	{name: "lowest addresses", match: conditions{addressesOf(program.Source, "0.0.0.0-0.0.0.5")}, want: `ip saddr 0.0.0.0-0.0.0.5 accept`},
	{name: "highest addresses", match: conditions{addressesOf(program.Source, "250.0.0.0-255.255.255.255", "ff00::/8")}, want: `ip saddr 250.0.0.0-255.255.255.255 accept`},
	{name: "set", match: conditions{setOn(program.Source, "office")}, want: `ip saddr @office4_* accept`},
	{name: "not in set", match: conditions{not(setOn(program.Source, "office"))}, want: `ip saddr != @office4_* accept`},
	{name: "single addresses", match: conditions{setOn(program.Source, "hosts")}, want: `ip saddr @hosts4_* accept`},
	{name: "set to both ends", match: conditions{setOn(program.Source, "ends")}, want: `ip saddr @ends4_* accept`},
	{name: "two sets of one name", match: conditions{setOn(program.Source, "twin"), setOn(program.Destination, "twin_net")}, want: `ip daddr 203.0.113.0/24 ip saddr @twin_v4 accept`},
	{name: "set of everything", match: conditions{setOn(program.Source, "all")}, want: `ip saddr @all4_* accept`},
	{name: "counted set", match: conditions{setOn(program.Source, "tallied")}, want: `ip saddr @tallied4_* accept`},
	{name: "set of one family", match: conditions{setOn(program.Source, "four")}, want: `ip saddr 203.0.113.0/24 accept`},
	{name: "not in set of one family", match: conditions{not(setOn(program.Source, "four"))}, want: `ip saddr != 203.0.113.0/24 accept`},
	{name: "source and destination sets", match: conditions{setOn(program.Source, "office"), setOn(program.Destination, "hosts")}, want: `ip saddr @office4_* ip daddr @hosts4_* accept`},
	{name: "living set", match: conditions{setOn(program.Source, "banned")}, want: `ip saddr @banned_v4 accept`},
	{name: "living counted set", match: conditions{setOn(program.Source, "counted")}, want: `ip saddr @counted_v4_counted accept`},
	{name: "not in living set", match: conditions{not(setOn(program.Source, "counted"))}, want: `ip saddr != @counted_v4_counted ip saddr != @counted_net4_* accept`},
	{name: "dynamic set", match: conditions{setOn(program.Destination, "limits")}, want: `ip daddr @limits_v4_* accept`},
	{name: "endpoints", match: conditions{setOn(program.Destination, "listeners", program.Destination, program.Protocol, program.Port)}, want: `ip daddr . meta l4proto . th dport @listeners4_* accept`},
	{name: "endpoints behind a port", match: conditions{protocolIs(6), numbersOf(program.Port, exactly(80)), setOn(program.Destination, "listeners", program.Destination, program.Protocol, program.Port)}, want: `tcp dport 80 ip daddr . meta l4proto . th dport @listeners4_* accept`},
	{name: "endpoints turned round", match: conditions{setOn(program.Source, "listeners", program.Source, program.Protocol, program.SourcePort)}, want: `ip saddr . meta l4proto . th sport @listeners4_* accept`},
	{name: "endpoints with ranges", match: conditions{protocolIs(6), setOn(program.Destination, "wide", program.Destination, program.Port)}, want: `meta l4proto tcp ip daddr . th dport @wide4_* accept`},
	{name: "protocol", match: conditions{protocolIs(6)}, want: `meta l4proto tcp accept`},
	{name: "protocols", match: conditions{protocolIs(6, 17, 112)}, want: `meta l4proto { tcp, udp, 112 } accept`},
	{name: "protocol of one family", match: conditions{protocolIs(1)}, want: `meta l4proto icmp meta nfproto ipv4 accept`},
	{name: "ICMP of both families", match: conditions{protocolIs(1, 58)}, want: `meta l4proto icmp meta nfproto ipv4 accept`},
	{name: "not a protocol", match: conditions{not(protocolIs(6))}, want: `meta l4proto != tcp accept`},
	{name: "port", match: conditions{protocolIs(6), numbersOf(program.Port, exactly(80))}, want: `tcp dport 80 accept`},
	{name: "ports", match: conditions{protocolIs(6), numbersOf(program.Port, exactly(443, 80))}, want: `tcp dport { 80, 443 } accept`},
	{name: "adjacent ports", match: conditions{protocolIs(6), numbersOf(program.Port, exactly(80, 81, 90))}, want: `tcp dport { 80-81, 90 } accept`},
	{name: "port range", match: conditions{protocolIs(17), numbersOf(program.Port, ranges(1024, 65535))}, want: `udp dport 1024-65535 accept`},
	{name: "low ports", match: conditions{protocolIs(17), numbersOf(program.Port, ranges(0, 1023))}, want: `udp dport 0-1023 accept`},
	{name: "every port", match: conditions{protocolIs(17), numbersOf(program.Port, ranges(0, 65535))}, want: `meta l4proto udp accept`},
	{name: "not a port", match: conditions{protocolIs(6), not(numbersOf(program.Port, exactly(80, 443)))}, want: `tcp dport != { 80, 443 } accept`},
	{name: "port of two protocols", match: conditions{protocolIs(6, 17), numbersOf(program.Port, exactly(53))}, want: `meta l4proto { tcp, udp } th dport 53 accept`},
	{name: "source and destination port", match: conditions{protocolIs(17), numbersOf(program.SourcePort, exactly(67)), numbersOf(program.Port, exactly(68))}, want: `udp sport 67 udp dport 68 accept`},
	{name: "sctp port", match: conditions{protocolIs(132), numbersOf(program.Port, exactly(5))}, want: `sctp dport 5 accept`},
	{name: "icmp type", match: conditions{protocolIs(1), numbersOf(program.ICMPType, exactly(8))}, want: `meta nfproto ipv4 icmp type echo-request accept`},
	{name: "icmp types", match: conditions{protocolIs(1), numbersOf(program.ICMPType, exactly(3, 11, 12))}, want: `meta nfproto ipv4 icmp type { destination-unreachable, 11-12 } accept`},
	{name: "icmp code", match: conditions{protocolIs(1), numbersOf(program.ICMPType, exactly(3)), numbersOf(program.ICMPCode, exactly(4))}, want: `meta nfproto ipv4 icmp type destination-unreachable icmp code 4 accept`},
	{name: "icmpv6 types", match: conditions{protocolIs(58), numbersOf(program.ICMPv6Type, exactly(133, 134, 135, 136, 141, 142, 148, 149)), numbersOf(program.HopLimit, exactly(255))}, want: `icmpv6 type { 133-136, 141-142, 148-149 } ip6 hoplimit 255 accept`},
	{name: "icmpv6 code", match: conditions{protocolIs(58), numbersOf(program.ICMPv6Type, exactly(1)), numbersOf(program.ICMPv6Code, ranges(0, 3))}, want: `meta nfproto ipv6 icmpv6 type destination-unreachable icmpv6 code 0-3 accept`},
	{name: "tcp flags", match: conditions{protocolIs(6), {Field: program.TCPFlags, Numbers: exactly(2), Mask: 0x12}}, want: `tcp flags & (syn | ack) == syn accept`},
	{name: "tcp flags not", match: conditions{protocolIs(6), {Field: program.TCPFlags, Numbers: exactly(2), Mask: 0x17, Not: true}}, want: `tcp flags & (fin | syn | rst | ack) != syn accept`},
	{name: "no tcp flag of these", match: conditions{protocolIs(6), {Field: program.TCPFlags, Numbers: exactly(0), Mask: 6}}, want: `@th,96,32 & 0x60000 == 0x0 meta l4proto tcp accept`},
	{name: "one tcp flag", match: conditions{protocolIs(6), {Field: program.TCPFlags, Numbers: exactly(4), Mask: 4}}, want: `@th,96,32 & 0x40000 == 0x40000 meta l4proto tcp accept`},
	{name: "all tcp flags", match: conditions{protocolIs(6), {Field: program.TCPFlags, Numbers: exactly(2)}}, want: `tcp flags == syn accept`},
	{name: "several tcp flags", match: conditions{protocolIs(6), {Field: program.TCPFlags, Numbers: exactly(2, 18), Mask: 0x12}}, want: `tcp flags & (syn | ack) { syn, syn | ack } accept`},
	{name: "fragment", match: conditions{numbersOf(program.Fragment, exactly(1))}, want: `ip frag-off & 8191 != 0 accept`},
	{name: "no fragment", match: conditions{not(numbersOf(program.Fragment, exactly(1)))}, want: `ip frag-off & 8191 == 0 accept`},
	{name: "extension header", match: conditions{numbersOf(program.Extension, exactly(43))}, want: `meta nfproto ipv6 exthdr rt exists accept`},
	{name: "no extension header", match: conditions{not(numbersOf(program.Extension, exactly(43, 60)))}, want: `meta nfproto ipv6 exthdr rt missing exthdr dst missing accept`},
	{name: "length", match: conditions{numbersOf(program.Length, ranges(100, 200))}, want: `meta length 100-200 accept`},
	{name: "dscp", match: conditions{numbersOf(program.DSCP, exactly(46))}, want: `ip dscp 46 accept`},
	{name: "dscp range", match: conditions{numbersOf(program.DSCP, ranges(1, 3))}, want: `ip dscp 1-3 accept`},
	{name: "state", match: conditions{namesOf(program.State, "established", "related")}, want: `ct state established,related accept`},
	{name: "ports of what is established", match: conditions{namesOf(program.State, "established"), protocolIs(6), {Field: program.Port, Not: true, Numbers: exactly(22)}}, want: `ct state == established meta l4proto tcp tcp dport != 22 accept`},
	{name: "two ports, one by one", match: conditions{namesOf(program.State, "established"), protocolIs(6), {Field: program.SourcePort, Not: true, Numbers: exactly(22)}, {Field: program.SourcePort, Not: true, Numbers: exactly(2222)}}, want: `ct state == established meta l4proto tcp tcp sport != 22 tcp sport != 2222 accept`},
	{name: "neither source nor destination port", match: conditions{protocolIs(17), not(numbersOf(program.SourcePort, exactly(67))), not(numbersOf(program.Port, exactly(68)))}, want: `udp sport != 67 udp dport { 0-67, 69-65535 } accept`},
	{name: "neither port of two protocols", match: conditions{protocolIs(6, 17), not(numbersOf(program.Port, exactly(0))), not(numbersOf(program.SourcePort, exactly(53)))}, want: `meta l4proto { tcp, udp } th sport != 53 th dport 1-65535 accept`},
	{name: "neither of the ports, one by one", match: conditions{protocolIs(6), not(numbersOf(program.SourcePort, exactly(1))), not(numbersOf(program.SourcePort, exactly(2))), not(numbersOf(program.Port, exactly(3))), not(numbersOf(program.Port, exactly(65535)))}, want: `tcp sport != 1 tcp sport != 2 tcp dport { 0-2, 4-65535 } tcp dport 0-65534 accept`},
	{name: "one port and not the other", match: conditions{protocolIs(17), numbersOf(program.SourcePort, exactly(67)), not(numbersOf(program.Port, exactly(68)))}, want: `udp sport 67 udp dport != 68 accept`},
	{name: "neither icmp type nor code", match: conditions{protocolIs(1), not(numbersOf(program.ICMPType, exactly(3))), not(numbersOf(program.ICMPCode, exactly(4)))}, want: `meta nfproto ipv4 icmp type != destination-unreachable icmp code { 0-3, 5-255 } accept`},
	{name: "neither icmpv6 type nor code", match: conditions{protocolIs(58), not(numbersOf(program.ICMPv6Type, exactly(1))), not(numbersOf(program.ICMPv6Code, exactly(255)))}, want: `meta nfproto ipv6 icmpv6 type != destination-unreachable icmpv6 code 0-254 accept`},
	{name: "neither of both addresses", match: conditions{not(addressesOf(program.Source, "192.0.2.1", "2001:db8::1")), not(addressesOf(program.Destination, "192.0.2.2", "2001:db8::2"))}, want: `ip saddr != 192.0.2.1 ip daddr != 192.0.2.2 accept`},
	{name: "one state", match: conditions{namesOf(program.State, "invalid")}, want: `ct state == invalid accept`},
	{name: "not a state", match: conditions{not(namesOf(program.State, "new", "untracked"))}, want: `ct state != { new, untracked } accept`},
	{name: "direction", match: conditions{namesOf(program.Direction, "reply")}, want: `ct direction reply accept`},
	{name: "status", match: conditions{namesOf(program.Status, "dnat")}, want: `ct status dnat accept`},
	{name: "one of two status", match: conditions{namesOf(program.Status, "dnat", "snat")}, want: `ct status snat,dnat accept`},
	{name: "not a status", match: conditions{not(namesOf(program.Status, "dnat"))}, want: `ct status & (dnat) == 0 accept`},
	{name: "original address", match: conditions{addressesOf(program.OriginalDestination, "192.0.2.1", "198.51.100.0/24")}, want: `meta nfproto ipv4 ct original ip daddr { 192.0.2.1, 198.51.100.0/24 } accept`},
	{name: "original address in set", match: conditions{setOn(program.OriginalSource, "office")}, want: `meta nfproto ipv4 ct original ip saddr @office4_* accept`},
	{name: "original port", match: conditions{protocolIs(6), numbersOf(program.OriginalPort, exactly(80))}, want: `meta l4proto tcp ct original proto-dst 80 accept`},
	{name: "original ports", match: conditions{protocolIs(6, 17), numbersOf(program.OriginalPort, []program.NumberRange{{From: 80, To: 80}, {From: 90, To: 95}})}, want: `meta l4proto tcp ct original proto-dst 80 accept`},
	{name: "not original ports", match: conditions{protocolIs(6), not(numbersOf(program.OriginalPort, exactly(80, 443)))}, want: `meta l4proto tcp ct original proto-dst != 80 ct original proto-dst != 443 accept`},
	{name: "mark", match: conditions{numbersOf(program.Mark, exactly(16))}, want: `meta mark 16 accept`},
	{name: "mark under mask", match: conditions{{Field: program.Mark, Numbers: exactly(16), Mask: 0xff}}, want: `meta mark & 0x000000ff == 16 accept`},
	{name: "mark under mask in range", match: conditions{{Field: program.Mark, Numbers: ranges(16, 20), Mask: 0xff, Not: true}}, want: `meta mark & 0x000000ff != 16-20 accept`},
	{name: "source type", match: conditions{namesOf(program.SourceType, "local")}, want: `fib saddr type local accept`},
	{name: "destination types", match: conditions{not(namesOf(program.DestinationType, "local", "broadcast", "multicast"))}, want: `fib daddr type != { local, broadcast, multicast } accept`},
	{name: "destination here", match: conditions{namesOf(program.DestinationHere, "local")}, want: `fib daddr . iif type local accept`},
	{name: "owner", kind: program.Output, match: conditions{numbersOf(program.Owner, []program.NumberRange{{From: 0, To: 0}, {From: 100, To: 999}})}, want: `meta skuid { 0, 100-999 } accept`},
	{name: "opaque", match: conditions{{Field: program.Opaque, Text: "meta pkttype broadcast"}}, want: `meta pkttype broadcast accept`},

	{name: "drop", actions: actions{program.Drop}, want: `drop`},
	{name: "return", actions: actions{program.Return}, want: `return`},
	{name: "reject tcp", match: conditions{protocolIs(6)}, actions: actions{program.Reject}, want: `meta l4proto tcp reject with tcp reset`},
	{name: "reject tcp in a chain", match: conditions{protocolIs(6)}, actions: actions{program.Count{Counter: "c_one"}, program.Log{Prefix: "in", Rate: perSecond(5, 10)}, program.Reject}, want: `meta l4proto tcp goto r_1_then`},
	{name: "reject udp", match: conditions{protocolIs(17)}, actions: actions{program.Reject}, want: `meta l4proto udp reject with icmpx type port-unreachable`},
	{name: "reject any", actions: actions{program.Reject}, want: `goto reject_packet`},
	{name: "count", actions: actions{program.Count{Counter: "c_one"}, program.Accept}, want: `counter name "c_one" accept`},
	{name: "log at the end", actions: actions{program.Log{Prefix: "in", Rate: perSecond(5, 10)}}, want: `limit rate 5/second burst 10 packets log prefix "sluice in: "`},
	{name: "log without match", actions: actions{program.Count{Counter: "c_one"}, program.Log{Prefix: "in", Rate: perSecond(5, 10)}, program.Drop}, want: `limit rate 5/second burst 10 packets log prefix "sluice in: "`},
	{name: "log behind match", match: conditions{protocolIs(6)}, actions: actions{program.Count{Counter: "c_one"}, program.Log{Prefix: "in", Rate: perSecond(5, 10)}, program.Drop}, want: `meta l4proto tcp goto r_1_then`},
	{name: "log behind gate", match: conditions{protocolIs(6)}, actions: actions{program.Limit{Name: "l", Rate: perSecond(5, 5)}, program.Log{Prefix: "in", Rate: perSecond(5, 10)}, program.Accept}, want: `meta l4proto tcp limit name "l_*" goto r_1_log`},
	{name: "log with quotes", actions: actions{program.Log{Prefix: `a"b\c$d`, Rate: perSecond(5, 10)}}, want: `limit rate 5/second burst 10 packets log prefix "sluice a'b/c_d: "`},
	{name: "limit", actions: actions{program.Limit{Name: "l", Rate: perSecond(20, 20)}, program.Accept}, want: `limit name "l_*" accept`},
	{name: "limit in two families", match: conditions{setOn(program.Source, "office")}, actions: actions{program.Limit{Name: "l", Rate: perSecond(20, 20)}, program.Accept}, want: `ip saddr @office4_* limit name "l_*" accept`},
	{name: "limit per source", match: conditions{protocolIs(6)}, actions: actions{program.Limit{Name: "lim", Rate: perSecond(20, 20), Per: program.PerSource, Table: "limits", FullCounter: "c_one"}, program.Count{Counter: "c_one"}, program.Accept}, want: `meta l4proto tcp jump lim`},
	{name: "limit per source with ban", actions: actions{program.Limit{Name: "lim", Rate: perSecond(20, 20), Per: program.PerSource, Table: "limits", FullCounter: "c_one", Ban: "bans", BanTimeout: 600_000, NeverBan: "counted"}, program.Log{Prefix: "x", Rate: perSecond(1, 1)}, program.Accept}, want: `jump lim`},
	{name: "connection limit", actions: actions{program.ConnectionLimit{Name: "con", Max: 20}, program.Accept}, want: `ct count 20 accept`},
	{name: "connection limit in two families", match: conditions{setOn(program.Source, "office")}, actions: actions{program.ConnectionLimit{Name: "con", Max: 20}, program.Accept}, want: `ip saddr @office4_* jump r_1_then`},
	{name: "connection limit per source", actions: actions{program.ConnectionLimit{Name: "con", Max: 20, Per: program.PerSource, Table: "connections", FullCounter: "c_one"}, program.Accept}, want: `jump con`},
	{name: "two gates", actions: actions{program.Limit{Name: "lim", Rate: perSecond(20, 20), Per: program.PerSource, Table: "limits"}, program.ConnectionLimit{Name: "con", Max: 20, Per: program.PerSource, Table: "connections"}, program.Accept}, want: `jump lim`},
	{name: "set add", actions: actions{program.SetAdd{Set: "bans", Key: program.PerSource, Timeout: 90_000}, program.Drop}, want: `meta nfproto ipv4 add @bans_v4_* { ip saddr timeout 90s } drop`},
	{name: "set mark", kind: program.Prerouting, phase: program.Mangle, actions: actions{program.SetMark{Value: 16}, program.Return}, want: `meta mark set 16 return`},
	{name: "set mark under mask", kind: program.Output, phase: program.Mangle, actions: actions{program.SetMark{Value: 0x10, Mask: 0xff}}, want: `meta mark set meta mark & 4294967040 | 16`},
	{name: "notrack", kind: program.Prerouting, phase: program.Raw, actions: actions{program.NoTrack{}, program.Accept}, want: `notrack accept`},
	{name: "dnat", kind: program.Prerouting, phase: program.NAT, match: conditions{protocolIs(6), numbersOf(program.Port, exactly(80))}, actions: actions{program.DNAT{To: netip.MustParseAddr("10.20.0.5"), Port: 8080}}, want: `tcp dport 80 dnat ip to 10.20.0.5:8080`},
	{name: "dnat of an address", kind: program.Output, phase: program.NAT, match: conditions{addressesOf(program.Destination, "198.51.100.9")}, actions: actions{program.DNAT{To: netip.MustParseAddr("10.20.0.5")}}, want: `ip daddr 198.51.100.9 dnat ip to 10.20.0.5`},
	{name: "dnat IPv6", kind: program.Prerouting, phase: program.NAT, match: conditions{protocolIs(6, 17), numbersOf(program.Port, exactly(80))}, actions: actions{program.DNAT{To: netip.MustParseAddr("2001:db8::5"), Port: 8080}}, want: `meta l4proto { tcp, udp } th dport 80 dnat ip6 to [2001:db8::5]:8080`},
	{name: "dnat prefix", kind: program.Prerouting, phase: program.NAT, actions: actions{program.DNATPrefix{From: netip.MustParsePrefix("198.51.100.16/28"), To: netip.MustParsePrefix("10.20.1.0/28")}}, want: `dnat ip prefix to ip daddr map { 198.51.100.16/28 : 10.20.1.0/28 }`},
	{name: "dnat prefix IPv6", kind: program.Prerouting, phase: program.NAT, actions: actions{program.DNATPrefix{From: netip.MustParsePrefix("2001:db8:1::/64"), To: netip.MustParsePrefix("2001:db8:2::/64")}}, want: `dnat ip6 prefix to ip6 daddr map { 2001:db8:1::/64 : 2001:db8:2::/64 }`},
	{name: "dnat prefix of one address", kind: program.Prerouting, phase: program.NAT, actions: actions{program.DNATPrefix{From: netip.MustParsePrefix("198.51.100.16/32"), To: netip.MustParsePrefix("10.20.1.0/32")}}, want: `ip daddr 198.51.100.16 dnat ip to 10.20.1.0`},
	{name: "snat", kind: program.Postrouting, phase: program.NAT, actions: actions{program.SNAT{To: netip.MustParseAddr("198.51.100.7")}}, want: `snat ip to 198.51.100.7`},
	{name: "snat prefix", kind: program.Postrouting, phase: program.NAT, actions: actions{program.SNATPrefix{From: netip.MustParsePrefix("10.20.1.0/28"), To: netip.MustParsePrefix("198.51.100.16/28")}}, want: `snat ip prefix to ip saddr map { 10.20.1.0/28 : 198.51.100.16/28 }`},
	{name: "masquerade", kind: program.Postrouting, phase: program.NAT, match: conditions{namesOf(program.OutInterface, "wan0")}, actions: actions{program.Masquerade{}}, want: `oifname "wan0" masquerade`},
	{name: "masquerade to ports", kind: program.Postrouting, phase: program.NAT, match: conditions{numbersOf(program.Protocol, exactly(17))}, actions: actions{program.Masquerade{Ports: program.NumberRange{From: 1024, To: 65535}}}, want: `meta l4proto udp masquerade to :1024-65535`},
	{name: "snat to ports", kind: program.Postrouting, phase: program.NAT, match: conditions{numbersOf(program.Protocol, exactly(6))}, actions: actions{program.SNAT{To: netip.MustParseAddr("2001:db8::7"), Ports: program.NumberRange{From: 1, To: 79}}}, want: `meta l4proto tcp snat ip6 to [2001:db8::7]:1-79`},
	{name: "snat to one port", kind: program.Postrouting, phase: program.NAT, match: conditions{numbersOf(program.Protocol, exactly(6))}, actions: actions{program.SNAT{To: netip.MustParseAddr("198.51.100.7"), Ports: program.NumberRange{From: 79, To: 79}}}, want: `meta l4proto tcp snat ip to 198.51.100.7:79`},
	{name: "masquerade IPv4", kind: program.Postrouting, phase: program.NAT, match: conditions{v4}, actions: actions{program.Masquerade{}}, want: `masquerade`},
	{name: "redirect", kind: program.Prerouting, phase: program.NAT, match: conditions{protocolIs(6), numbersOf(program.Port, exactly(80))}, actions: actions{program.Redirect{Port: 8080}}, want: `tcp dport 80 redirect to :8080`},
	{name: "redirect to the same port", kind: program.Prerouting, phase: program.NAT, actions: actions{program.Redirect{}}, want: `redirect`},
	{name: "map destination", kind: program.Prerouting, phase: program.Raw, match: conditions{addressesOf(program.Destination, "198.51.100.16/28")}, actions: actions{program.MapDestination{From: netip.MustParsePrefix("198.51.100.16/28"), To: netip.MustParsePrefix("10.20.1.0/28")}}, want: `ip daddr 198.51.100.16/28 ip daddr set ip daddr & 0.0.0.15 | 10.20.1.0`},
	{name: "map source", kind: program.Postrouting, phase: program.Filter, match: conditions{addressesOf(program.Source, "2001:db8:1::/64")}, actions: actions{program.MapSource{From: netip.MustParsePrefix("2001:db8:1::/64"), To: netip.MustParsePrefix("2001:db8:2::/64")}}, want: `ip6 saddr 2001:db8:1::/64 ip6 saddr set ip6 saddr & ::ffff:ffff:ffff:ffff | 2001:db8:2::`},
	{name: "map one address", kind: program.Prerouting, phase: program.Raw, match: conditions{addressesOf(program.Destination, "198.51.100.16")}, actions: actions{program.MapDestination{From: netip.MustParsePrefix("198.51.100.16/32"), To: netip.MustParsePrefix("10.20.1.1/32")}}, want: `ip daddr 198.51.100.16 ip daddr set 10.20.1.1`},
	{name: "clamp mss", kind: program.Forward, match: conditions{protocolIs(6), {Field: program.TCPFlags, Numbers: exactly(2), Mask: 6}}, actions: actions{program.ClampMSS{}}, want: `@th,96,32 & 0x60000 == 0x20000 meta l4proto tcp tcp option maxseg size set rt mtu`},
	{name: "ingress", kind: program.Ingress, phase: program.Early, match: conditions{setOn(program.Source, "office")}, actions: actions{program.Drop}, want: `ip saddr @office4_* drop`},
	{name: "jump", actions: actions{program.Jump{Chain: "sub"}}, want: `jump sub`},
	{name: "goto", actions: actions{program.Count{Counter: "c_one"}, program.Goto{Chain: "sub"}}, want: `counter name "c_one" goto sub`},
	{name: "destination and source port of TCP", match: conditions{protocolIs(6), numbersOf(program.Port, exactly(68)), numbersOf(program.SourcePort, exactly(67))}, want: `tcp sport 67 tcp dport 68 accept`},
	{name: "destination and source port of UDP", match: conditions{protocolIs(17), numbersOf(program.Port, exactly(68)), numbersOf(program.SourcePort, exactly(67))}, want: `udp sport 67 udp dport 68 accept`},
	{name: "destination and source port of SCTP", match: conditions{protocolIs(132), numbersOf(program.Port, exactly(68)), numbersOf(program.SourcePort, exactly(67))}, want: `sctp sport 67 sctp dport 68 accept`},
	{name: "icmp code before type", match: conditions{protocolIs(1), numbersOf(program.ICMPCode, exactly(4)), numbersOf(program.ICMPType, exactly(3))}, want: `meta nfproto ipv4 icmp type destination-unreachable icmp code 4 accept`},
	{name: "icmpv6 code before type", match: conditions{protocolIs(58), numbersOf(program.ICMPv6Code, exactly(4)), numbersOf(program.ICMPv6Type, exactly(1))}, want: `meta nfproto ipv6 icmpv6 type destination-unreachable icmpv6 code 4 accept`},
	{name: "notrack at output", kind: program.Output, phase: program.Raw, actions: actions{program.NoTrack{}, program.Accept}, want: `notrack accept`},
	{name: "tcp flags side by side", match: conditions{protocolIs(6), {Field: program.TCPFlags, Numbers: exactly(0x40), Mask: 0xc0, Not: true}}, want: `@th,96,32 & 0xc00000 != 0x400000 meta l4proto tcp accept`},
	{name: "tcp flags of a source", match: conditions{protocolIs(6), {Field: program.TCPFlags, Numbers: exactly(2), Mask: 6}, addressesOf(program.Source, "192.0.2.0/24")}, want: `meta nfproto ipv4 @th,96,32 & 0x60000 == 0x20000 meta l4proto tcp ip saddr 192.0.2.0/24 accept`},
	{name: "notrack of a port", kind: program.Prerouting, phase: program.Raw, match: conditions{protocolIs(6), numbersOf(program.Port, ranges(8000, 8009)), setOn(program.Destination, "office")}, actions: actions{program.NoTrack{}, program.Accept}, want: `meta nfproto ipv4 tcp dport 8000-8009 ip daddr @office4_* notrack accept`},
	{name: "notrack of an address", kind: program.Prerouting, phase: program.Raw, match: conditions{protocolIs(6), numbersOf(program.Port, exactly(80, 443)), addressesOf(program.Destination, "192.0.2.7")}, actions: actions{program.NoTrack{}, program.Accept}, want: `ip daddr 192.0.2.7 tcp dport { 80, 443 } notrack accept`},
	{name: "rewritten between two", match: conditions{namesOf(program.Status, "dnat"), protocolIs(6), numbersOf(program.Port, exactly(80)), addressesOf(program.Destination, "192.0.2.7"), addressesOf(program.Source, "192.0.2.0/24")}, want: `ip daddr 192.0.2.7 ip saddr 192.0.2.0/24 ct status dnat meta l4proto tcp tcp dport 80 accept`},
	{name: "reject tcp of IPv4", match: conditions{v4, protocolIs(6)}, actions: actions{program.Reject}, want: `meta l4proto tcp meta nfproto != ipv6 reject with tcp reset`},
	{name: "reject a port of IPv6", match: conditions{v6, protocolIs(6), numbersOf(program.Port, exactly(80, 443))}, actions: actions{program.Reject}, want: `meta nfproto != ipv4 tcp dport { 80, 443 } reject with tcp reset`},
	{name: "reject flags of IPv4", match: conditions{v4, protocolIs(6), {Field: program.TCPFlags, Numbers: exactly(2), Mask: 6}}, actions: actions{program.Reject}, want: `meta nfproto != ipv6 @th,96,32 & 0x60000 == 0x20000 meta l4proto tcp reject with tcp reset`},
	{name: "reject an original port of IPv4", match: conditions{v4, protocolIs(6), numbersOf(program.OriginalPort, exactly(80))}, actions: actions{program.Reject}, want: `meta l4proto tcp meta nfproto != ipv6 ct original proto-dst 80 reject with tcp reset`},
	{name: "reject an extension header", match: conditions{protocolIs(6), numbersOf(program.Extension, exactly(43))}, actions: actions{program.Reject}, want: `meta l4proto tcp meta nfproto != ipv4 exthdr rt exists reject with tcp reset`},
	{name: "reject and count IPv6", match: conditions{v6, protocolIs(6)}, actions: actions{program.Count{Counter: "c_one"}, program.Reject}, want: `meta l4proto tcp meta nfproto != ipv4 counter name "c_one" reject with tcp reset`},
	{name: "reject udp of IPv4", match: conditions{v4, protocolIs(17)}, actions: actions{program.Reject}, want: `meta l4proto udp meta nfproto ipv4 reject with icmpx type port-unreachable`},
	{name: "reject IPv6", match: conditions{v6}, actions: actions{program.Reject}, want: `meta nfproto ipv6 goto reject_packet`},
	{name: "reject icmp", match: conditions{protocolIs(1)}, actions: actions{program.Reject}, want: `meta l4proto icmp meta nfproto ipv4 reject with icmpx type port-unreachable`},
	{name: "reject an icmpv6 type", match: conditions{protocolIs(58), numbersOf(program.ICMPv6Type, exactly(128))}, actions: actions{program.Reject}, want: `meta nfproto ipv6 icmpv6 type echo-request reject with icmpx type port-unreachable`},
	{name: "reject an original source", match: conditions{protocolIs(6), setOn(program.OriginalSource, "office")}, actions: actions{program.Reject}, want: `meta l4proto tcp meta nfproto != ipv6 ct original ip saddr @office4_* reject with tcp reset`},
}

func perSecond(n, burst uint64) program.Rate {
	return program.Rate{Packets: n, Per: 1000, Burst: burst}
}

func many(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("192.0.2.%d", 2*i))
	}
	return out
}

// program makes a whole program around the construct.
func (c construct) program() *program.Program {
	kind, phase, does := c.kind, c.phase, c.actions
	if kind == "" {
		kind = program.Input
	}
	if phase == "" {
		phase = program.Filter
	}
	if does == nil {
		does = actions{program.Accept}
	}
	hook := program.Hook{Kind: kind, Phase: phase, Default: program.Accept, Chain: "tried"}
	if kind == program.Ingress {
		hook.Devices = []string{"lo"}
	}
	return &program.Program{
		Owner: "sluice",
		Hooks: []program.Hook{hook},
		Chains: []program.Chain{
			{Name: "tried", Rules: []program.Rule{{
				ID: "r_1", Match: c.match, Actions: does,
				Origin: program.Origin{File: "policy.yaml", Line: 7, Column: 5, Text: c.name},
			}}},
			{Name: "sub", Rules: []program.Rule{{Actions: actions{program.Accept}}}},
		},
		Counters: []program.Counter{{Name: "c_one", Comment: "a counter"}},
		Sets:     trialSets(),
	}
}

func trialSets() []program.Set {
	source := []program.Field{program.Source}
	endpoint := []program.Field{program.Destination, program.Protocol, program.Port}
	tuple := func(address string, protocol, from, to uint64) program.Element {
		return program.Element{Parts: []program.Value{
			{Addresses: addressRanges(address)[0]},
			{Numbers: program.NumberRange{From: protocol, To: protocol}},
			{Numbers: program.NumberRange{From: from, To: to}},
		}}
	}
	place := func(address string, from, to uint64) program.Element {
		return program.Element{Parts: []program.Value{{Addresses: addressRanges(address)[0]}, {Numbers: program.NumberRange{From: from, To: to}}}}
	}
	return []program.Set{
		{ID: "office", Key: source, Life: program.Static, Addresses: addrset.MustParse("203.0.113.0/24", "198.51.100.7", "2001:db8:77::/48")},
		{ID: "hosts", Key: source, Life: program.Static, Addresses: addrset.MustParse("203.0.113.1", "203.0.113.3", "2001:db8::1")},
		{ID: "ends", Key: source, Life: program.Static, Addresses: addrset.MustParse("0.0.0.0-10.0.0.0", "10.0.0.2-255.255.255.255", "::-2001::5", "2001::7-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")},
		{ID: "twin", Key: source, Life: program.Living, Addresses: addrset.MustParse("203.0.113.0/24")},
		{ID: "twin_net", Key: source, Life: program.Static, Addresses: addrset.MustParse("203.0.113.0/24")},
		{ID: "all", Key: source, Life: program.Static, Addresses: addrset.MustParse("0.0.0.0/0", "::/0")},
		{ID: "tallied", Key: source, Life: program.Static, Counters: true, Elements: countedApart("203.0.113.0/25", "203.0.113.128/25", "203.0.113.64/26", "2001:db8::1")},
		{ID: "four", Key: source, Life: program.Static, Addresses: addrset.MustParse("203.0.113.0/24")},
		{ID: "banned", Key: source, Life: program.Living, Addresses: addrset.MustParse("203.0.113.9", "192.0.2.0/25", "2001:db8:bad::/48", "2001:db8::bad")},
		{ID: "counted", Key: source, Life: program.Living, Counters: true, Addresses: addrset.MustParse("203.0.113.9", "192.0.2.0/25", "2001:db8:bad::/48", "2001:db8::bad")},
		{ID: "limits", Key: source, Life: program.Dynamic, Size: 1024, Timeout: 60_000},
		{ID: "connections", Key: source, Life: program.Dynamic, Size: 1024},
		{ID: "bans", Key: source, Life: program.Dynamic, Size: 1024, Timeout: 600_000},
		{ID: "listeners", Key: endpoint, Life: program.Static, Elements: []program.Element{tuple("198.51.100.1", 6, 80, 80), tuple("198.51.100.1", 17, 443, 443), tuple("2001:db8::1", 6, 443, 443)}},
		{ID: "wide", Key: []program.Field{program.Destination, program.Port}, Life: program.Static, Elements: []program.Element{place("198.51.100.0/24", 80, 90), place("198.51.100.7", 80, 90), place("198.51.100.1", 443, 443)}},
	}
}

// TestConstructs loads every construct and reads it back.
func TestConstructs(t *testing.T) {
	host := kernelHost(t)
	for _, c := range constructs {
		t.Run(c.name, func(t *testing.T) {
			a := mustLower(t, c.program())
			at := slices.IndexFunc(a.Tree.Chains, func(k *Chain) bool { return bare(k.Name) == "tried" })
			rules := a.Tree.Chains[at].Rules
			if len(rules) == 0 {
				t.Fatalf("no rule was made")
			}
			if got := rules[0].text(); !matchesPattern(c.want, got) {
				t.Errorf("rule:\n got %s\nwant %s", got, c.want)
			}
			host.load(t, New(), a)
			for _, contents := range []bool{true, false} {
				if d := host.compare(t, a, contents); len(d) > 0 && c.name != "opaque" {
					t.Errorf("read back (contents: %v): %s", contents, differences(d))
				}
			}
			host.load(t, New(), nil)
			if s := host.read(t, true); !s.Empty() {
				t.Errorf("something is left after removal: %+v", s)
			}
		})
	}
}

// TestConstructsTogether loads all constructs as one program, then each of its
// steps again, which has to change nothing.
func TestConstructsTogether(t *testing.T) {
	host := kernelHost(t)
	p := together(t)
	a := mustLower(t, p)
	host.load(t, New(), a)
	if d := host.compare(t, a, true); len(d) > 0 {
		t.Fatalf("read back: %s", differences(d))
	}
	for _, contents := range []bool{true, false} {
		steps, err := New().Steps(a, host.read(t, contents))
		if err != nil || len(steps) > 0 {
			t.Errorf("an unchanged artifact takes steps (contents: %v): %v %v", contents, steps, err)
		}
	}
}

// together puts all constructs into one program, a chain for each.
func together(t *testing.T) *program.Program {
	t.Helper()
	all := &program.Program{Owner: "sluice", Counters: []program.Counter{{Name: "c_one"}}, Sets: trialSets()}
	for i, c := range constructs {
		if c.name == "opaque" {
			continue
		}
		p := c.program()
		chain := p.Chains[0]
		chain.Name = fmt.Sprintf("tried_%d", i)
		chain.Rules[0].ID = fmt.Sprintf("r_%d", i)
		p.Hooks[0].Chain = chain.Name
		all.Hooks = append(all.Hooks, p.Hooks...)
		all.Chains = append(all.Chains, chain)
		if i == 0 {
			all.Chains = append(all.Chains, p.Chains[1])
		}
	}
	return all
}

func requireNftables(t testing.TB) {
	t.Helper()
	testnet.Require(t, testnet.Nftables, testnet.NftNAT)
}
