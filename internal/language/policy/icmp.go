package policy

import "strings"

// icmpTypes are the kinds of ICMP messages by name, with their numbers in
// ICMP (RFC 792, 950, 1256) and ICMPv6 (RFC 4443, 2710, 3810, 4861); the names
// are nft's where it has one.
var icmpTypes = []ICMPType{
	{"echo-request", 8, 128},
	{"echo-reply", 0, 129},
	{"destination-unreachable", 3, 1},
	{"packet-too-big", -1, 2},
	{"time-exceeded", 11, 3},
	{"parameter-problem", 12, 4},
	{"source-quench", 4, -1},
	{"redirect", 5, 137},
	{"router-advertisement", 9, 134},
	{"router-solicitation", 10, 133},
	{"neighbour-solicitation", -1, 135},
	{"neighbour-advertisement", -1, 136},
	{"timestamp-request", 13, -1},
	{"timestamp-reply", 14, -1},
	{"info-request", 15, -1},
	{"info-reply", 16, -1},
	{"address-mask-request", 17, -1},
	{"address-mask-reply", 18, -1},
	{"mld-listener-query", -1, 130},
	{"mld-listener-report", -1, 131},
	{"mld-listener-done", -1, 132},
	{"mld2-listener-report", -1, 143},
	{"router-renumbering", -1, 138},
	{"inverse-neighbour-solicitation", -1, 141},
	{"inverse-neighbour-advertisement", -1, 142},
}

// icmpNamed finds a type; American spelling is read and not written.
func icmpNamed(name string) *ICMPType {
	name = strings.Replace(name, "neighbor", "neighbour", 1)
	for i := range icmpTypes {
		if icmpTypes[i].Name == name {
			t := icmpTypes[i]
			return &t
		}
	}
	return nil
}

func icmpNames() []string {
	out := make([]string, len(icmpTypes))
	for i, t := range icmpTypes {
		out[i] = t.Name
	}
	return out
}

// ICMPNames is the words of a rule for types of ICMP, or of ICMPv6 where six holds.
func ICMPNames(six bool) (out []string) {
	for _, t := range icmpTypes {
		if six && t.V6 >= 0 || !six && t.V4 >= 0 {
			out = append(out, t.Name)
		}
	}
	return out
}

// ICMPNumber is the type of ICMP, or of ICMPv6 where six holds, that a rule's
// word behind icmp names; false where the language or the family has none.
func ICMPNumber(six bool, name string) (uint8, bool) {
	t := icmpNamed(name)
	switch {
	case t == nil:
		return 0, false
	case six:
		return uint8(max(t.V6, 0)), t.V6 >= 0 //nolint:gosec // a type is 8 bits
	}
	return uint8(max(t.V4, 0)), t.V4 >= 0 //nolint:gosec // a type is 8 bits
}
