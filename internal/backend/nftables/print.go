package nftables

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/program"
)

// lineWidth is where lists of elements break.
const lineWidth = 100

// text is the rule as nft reads it, without its comment.
func (r Rule) text() string {
	parts := make([]string, len(r.Statements))
	for i, s := range r.Statements {
		parts[i] = s.text()
	}
	return strings.Join(parts, " ")
}

func (r Rule) line() string {
	if r.Comment == "" {
		return r.text()
	}
	return r.text() + ` comment "` + comment(r.Comment) + `"`
}

// text is the statement as nft reads it. Two statements of one text are equal.
func (s Statement) text() string {
	switch s.Kind {
	case Match:
		return s.matchText()
	case VerdictMap:
		if s.Set != "" {
			return s.left() + " vmap @" + s.Set
		}
		pairs := make([]string, 0, len(s.Map))
		for _, v := range slices.Sorted(maps.Keys(s.Map)) {
			pairs = append(pairs, named(s.Field, v)+" : "+s.Map[v])
		}
		return s.left() + " vmap { " + strings.Join(pairs, ", ") + " }"
	case Verdict, Opaque:
		return s.Name
	case Jump:
		return "jump " + s.Name
	case Goto:
		return "goto " + s.Name
	case Count:
		if s.Name == "" {
			return "counter"
		}
		return `counter name "` + s.Name + `"`
	case RateLimit:
		if s.Name != "" {
			return `limit name "` + s.Name + `"`
		}
		return "limit rate " + over(s.Over) + s.Rate.text()
	case ConnLimit:
		return "ct count " + over(s.Over) + strconv.FormatUint(s.Number, 10)
	case Log:
		if s.Number != 0 {
			return `log prefix "` + logPrefix(s.Name) + `" group ` + strconv.FormatUint(s.Number, 10) + " snaplen " + strconv.Itoa(program.LogLength)
		}
		if s.Name == "" {
			return "log"
		}
		return `log prefix "` + logPrefix(s.Name) + `"`
	case NoTrack:
		return "notrack"
	case Reject:
		if code, isICMP := strings.CutPrefix(s.Name, "icmpx "); isICMP {
			return "reject with icmpx type " + named("icmpx", code)
		}
		return "reject with " + s.Name
	case SetAdd:
		return s.setText()
	case Rewrite:
		return s.rewriteText()
	case DNAT, SNAT:
		return string(s.Kind) + " " + s.Name + " to " + s.target()
	case DNATPrefix, SNATPrefix:
		field := s.Name + " daddr"
		if s.Kind == SNATPrefix {
			field = s.Name + " saddr"
		}
		verb, _, _ := strings.Cut(string(s.Kind), " ")
		return fmt.Sprintf("%s %s prefix to %s map { %s : %s }", verb, s.Name, field, s.Values[0], s.Values[1])
	case Masquerade:
		if s.Ports != "" {
			return "masquerade to :" + s.Ports
		}
		return "masquerade"
	case Redirect:
		if s.Number == 0 {
			return "redirect"
		}
		return "redirect to :" + strconv.FormatUint(s.Number, 10)
	case Offload:
		return "flow add @" + s.Name
	}
	return "<" + string(s.Kind) + " " + s.Name + ">"
}

func over(is bool) string {
	if is {
		return "over "
	}
	return ""
}

func (r Rate) text() string {
	return fmt.Sprintf("%d/%s burst %d packets", r.Packets, r.Unit, r.Burst)
}

func (s Statement) left() string {
	if s.Mask == "" {
		return s.Field
	}
	return s.Field + " & " + named(s.Field+" mask", s.Mask)
}

func (s Statement) matchText() string {
	left := s.left()
	op := ""
	switch {
	case s.Op == "in":
		return left + " " + joinNamed(s.Field, s.Values, ",")
	case s.Op == "!":
		return left + " & (" + joinNamed(s.Field, s.Values, " | ") + ") == 0"
	case s.Op != "==":
		op = s.Op + " "
	case (s.Field == "tcp flags" || s.Field == "ct state") && len(s.Values) == 1, s.Mask != "" && (s.Set != "" || len(s.Values) == 1 && !strings.Contains(s.Values[0], "-")):
		op = "== " // without it, flags, states and masks are read as a list of bits
	}
	switch {
	case s.Set != "":
		return left + " " + op + "@" + s.Set
	case len(s.Values) == 1:
		return left + " " + op + named(s.Field, s.Values[0])
	}
	return left + " " + op + "{ " + joinNamed(s.Field, s.Values, ", ") + " }"
}

func joinNamed(field string, values []string, by string) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = named(field, v)
	}
	return strings.Join(out, by)
}

func (s Statement) setText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s @%s { %s", s.Op, s.Set, s.left())
	if s.Number > 0 {
		fmt.Fprintf(&b, " timeout %ds", s.Number)
	}
	for _, inner := range s.Inner {
		b.WriteString(" " + inner.text())
	}
	b.WriteString(" }")
	return b.String()
}

func (s Statement) rewriteText() string {
	switch {
	case len(s.Values) == 1:
		return s.Field + " set " + s.Values[0]
	case s.Mask == "":
		return s.Field + " set " + s.Name
	}
	// Bits of the new value are off under the mask, so or and xor are the same.
	return fmt.Sprintf("%s set %s & %s | %s", s.Field, s.Field, s.Mask, s.Name)
}

func (s Statement) target() string {
	address := s.Values[0]
	port := s.Ports
	if s.Number != 0 {
		port = strconv.FormatUint(s.Number, 10)
	}
	if port == "" {
		return address
	}
	if s.Name == "ip6" {
		address = "[" + address + "]"
	}
	return address + ":" + port
}

// mostMilliseconds is the longest time that nft takes in milliseconds: it reads eight
// digits of a number in a time (time_parse of its src/datatype.c).
const mostMilliseconds = 99_999_999

// definition is the set without its elements, as in "add set".
func (s *Set) definition() string {
	var b strings.Builder
	if s.raw() {
		b.WriteString("typeof " + s.Types[0])
	} else {
		fmt.Fprintf(&b, "type %s", strings.Join(s.Types, " . "))
	}
	if s.Verdicts {
		b.WriteString(" : verdict")
	}
	b.WriteByte(';')
	var flags []string
	if s.Interval {
		flags = append(flags, "interval")
	}
	switch {
	case s.byCommand(), s.Expires, s.Others:
		flags = append(flags, "timeout")
	case s.Life == program.Dynamic && s.Timeout > 0:
		flags = append(flags, "dynamic", "timeout")
	case s.Life == program.Dynamic:
		flags = append(flags, "dynamic")
	}
	if len(flags) > 0 {
		fmt.Fprintf(&b, " flags %s;", strings.Join(flags, ","))
	}
	if s.Size > 0 {
		fmt.Fprintf(&b, " size %d;", s.Size)
	}
	switch {
	case s.Timeout > mostMilliseconds: // always whole seconds, see layoutDynamic
		fmt.Fprintf(&b, " timeout %ds;", s.Timeout/1000)
	case s.Timeout > 0:
		fmt.Fprintf(&b, " timeout %dms;", s.Timeout)
	}
	if s.Counted {
		b.WriteString(" counter;")
	}
	return b.String()
}

// wrap joins elements with commas and breaks lines, each with an indent.
func wrap(b *strings.Builder, items []string, indent string) {
	width := 0
	for i, item := range items {
		switch {
		case i == 0:
			b.WriteString(indent)
			width = len(indent)
		case width+len(item)+2 > lineWidth:
			b.WriteString(",\n" + indent)
			width = len(indent)
		default:
			b.WriteString(", ")
			width += 2
		}
		b.WriteString(item)
		width += len(item)
	}
}

// symbols are the numbers that a reader knows better by name. Each name is a
// word of nft's own grammar, so no database of the machine is asked.
var symbols = map[string]map[string]string{
	"meta l4proto":         {"1": "icmp", "6": "tcp", "17": "udp", "58": "icmpv6", "50": "esp", "51": "ah", "108": "comp", "132": "sctp"},
	"inet_proto":           {"1": "icmp", "6": "tcp", "17": "udp", "58": "icmpv6", "50": "esp", "51": "ah", "108": "comp", "132": "sctp"},
	"meta nfproto":         {"2": "ipv4", "10": "ipv6"},
	"ct state":             {"1": "invalid", "2": "established", "4": "related", "8": "new", "64": "untracked"},
	"ct direction":         {"0": "original", "1": "reply"},
	"ct status":            {"1": "expected", "2": "seen-reply", "4": "assured", "8": "confirmed", "16": "snat", "32": "dnat", "512": "dying"},
	"fib saddr type":       fibTypes,
	"fib daddr type":       fibTypes,
	"fib daddr . iif type": fibTypes,
	"icmpx":                {"0": "no-route", "1": "port-unreachable", "2": "host-unreachable", "3": "admin-prohibited"},
	"icmp type": {
		"0": "echo-reply", "3": "destination-unreachable", "4": "source-quench", "5": "redirect", "8": "echo-request",
		"9": "router-advertisement", "10": "router-solicitation", "11": "time-exceeded", "12": "parameter-problem",
		"13": "timestamp-request", "14": "timestamp-reply", "15": "info-request", "16": "info-reply",
		"17": "address-mask-request", "18": "address-mask-reply",
	},
	"icmpv6 type": {
		"1": "destination-unreachable", "2": "packet-too-big", "3": "time-exceeded", "4": "parameter-problem",
		"128": "echo-request", "129": "echo-reply", "130": "mld-listener-query", "131": "mld-listener-report",
		"132": "mld-listener-done", "133": "nd-router-solicit", "134": "nd-router-advert", "135": "nd-neighbor-solicit",
		"136": "nd-neighbor-advert", "137": "nd-redirect", "141": "ind-neighbor-solicit", "142": "ind-neighbor-advert",
		"143": "mld2-listener-report",
	},
}

// Types of the routing table, from include/uapi/linux/rtnetlink.h.
var fibTypes = map[string]string{
	"1": "unicast", "2": "local", "3": "broadcast", "4": "anycast", "5": "multicast",
	"6": "blackhole", "7": "unreachable", "8": "prohibit",
}

var tcpFlagNames = []string{"fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"}

// named puts the name of a value in its place, for fields that have names.
func named(field, value string) string {
	switch field {
	case "ifname":
		return deviceText(value)
	case "iifname", "oifname":
		return `"` + value + `"`
	case "tcp flags":
		return tcpFlags(value, " | ")
	case "tcp flags mask":
		if text := tcpFlags(value, " | "); strings.Contains(text, "|") {
			return "(" + text + ")"
		}
		return tcpFlags(value, " | ")
	case "meta mark mask":
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return value
		}
		return fmt.Sprintf("0x%08x", n)
	}
	if strings.HasPrefix(field, "@") && !strings.HasSuffix(field, ",8") {
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			return fmt.Sprintf("0x%x", n)
		}
	}
	if name, has := symbols[field][value]; has {
		return name
	}
	return value
}

func tcpFlags(value, by string) string {
	n, err := strconv.ParseUint(value, 10, 8)
	if err != nil || n == 0 {
		return value
	}
	var names []string
	for bit, name := range tcpFlagNames {
		if n&(1<<bit) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, by)
}
