package ruleset

import (
	"math"
	"net/netip"
	"slices"
	"strings"
)

// reader knows the named sets of the table whose rules it reads.
type reader struct {
	family   string
	elements func(kind, set string) []any
}

func ruleOf(family string, statements []map[string]any, elements func(kind, set string) []any) Rule {
	r := reader{family: family, elements: elements}
	var rule Rule
	for _, s := range statements {
		for verb, body := range s {
			r.statement(&rule, verb, body)
		}
	}
	return rule
}

func (r reader) statement(rule *Rule, verb string, body any) {
	fields, _ := body.(map[string]any)
	switch verb {
	case "match":
		if op, _ := fields["op"].(string); op == "==" || op == "in" {
			rule.Match = cross(rule.Match, r.matches(fields["left"], fields["right"]))
		}
	case "drop", "reject":
		rule.Drops = true
	case "queue", "synproxy": // a program gives the packet back as it likes; SYNs are answered for the server
		rule.Drops, rule.Rewrites = true, true
	case "dup":
		if r.family == "netdev" {
			rule.More = append(rule.More, Forwards)
		} else {
			rule.More = append(rule.More, Copies)
		}
	case "fwd":
		rule.Rewrites, rule.More = true, append(rule.More, Forwards)
	case "flow":
		rule.More = append(rule.More, Offloads)
	case "ct expectation":
		rule.More = append(rule.More, Expects)
	case "ct helper":
		rule.More = append(rule.More, Helps)
	case "ct timeout":
		rule.More = append(rule.More, Times)
	case "mangle", "reset", "notrack", "snat", "masquerade", "tproxy":
		rule.Rewrites = true
	case "jump", "goto":
		if chain, ok := fields["target"].(string); ok {
			rule.Jumps = append(rule.Jumps, Jump{Chain: chain})
		}
	case "vmap":
		for _, pair := range r.pairs(fields["data"]) {
			verdict, _ := pair[1].(map[string]any)
			for v, target := range verdict {
				r.mapped(rule, fields["key"], pair[0], v, target)
			}
		}
	case "dnat":
		rule.Rewrites = true
		r.dnat(rule, fields)
	case "redirect":
		rule.Rewrites = true
		rule.NAT = append(rule.NAT, Rewrite{})
	case "xt":
		name, _ := fields["name"].(string)
		kind, _ := fields["type"].(string)
		switch {
		case kind == "target" && slices.Contains(droppingTargets, name):
			rule.Drops = true
		case kind == "target" && slices.Contains(rewritingTargets, name):
			rule.Rewrites, rule.extension = true, true
		case kind == "target" && name == "TEE":
			rule.More = append(rule.More, Copies)
		case kind != "match":
			// Older versions of nft print null: it may be anything.
			rule.extension = true
		}
	case "accept", "return", "continue", "counter", "log", "limit", "quota", "set", "map", "meter", "ct count", "secmark", "last":
	default:
		rule.More = append(rule.More, Unknown)
	}
}

// rewritingTargets are those that change the packet, or whether it is tracked.
var rewritingTargets = []string{
	"DNAT", "SNAT", "MASQUERADE", "REDIRECT", "NETMAP", "MARK", "CONNMARK", "CT", "NOTRACK", "TPROXY", "TOS", "DSCP", "TTL", "HL", "TCPMSS", "ECN",
}

// droppingTargets are the xtables targets after which a packet may be gone.
var droppingTargets = []string{"DROP", "REJECT", "NFQUEUE", "QUEUE", "TARPIT", "DELUDE", "SYNPROXY"}

func (r reader) mapped(rule *Rule, key, element any, verdict string, target any) {
	fields, _ := target.(map[string]any)
	switch verdict {
	case "drop", "reject", "queue":
		rule.Drops = true
	case "jump", "goto":
		chain, _ := fields["target"].(string)
		for _, m := range orAny(element1(key, element)) {
			rule.Jumps = append(rule.Jumps, Jump{Match: m, Chain: chain})
		}
	}
}

func (r reader) dnat(rule *Rule, fields map[string]any) {
	port := number(fields["port"])
	if address, ok := fields["addr"].(string); ok {
		rule.NAT = append(rule.NAT, Rewrite{To: target(address, port)})
		return
	}
	through, _ := fields["addr"].(map[string]any)
	lookup, _ := through["map"].(map[string]any)
	pairs := r.pairs(lookup["data"])
	if len(pairs) == 0 {
		rule.NAT = append(rule.NAT, Rewrite{})
		return
	}
	for _, pair := range pairs {
		to := netip.AddrPort{}
		switch v := pair[1].(type) {
		case string:
			to = target(v, port)
		case map[string]any:
			if parts, ok := v["concat"].([]any); ok && len(parts) == 2 {
				address, _ := parts[0].(string)
				to = target(address, number(parts[1]))
			}
		}
		for _, m := range orAny(element1(lookup["key"], pair[0])) {
			rule.NAT = append(rule.NAT, Rewrite{Match: m, To: to})
		}
	}
}

func target(address string, port uint16) netip.AddrPort {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, port)
}

// orAny makes of no condition the one that everything fulfils.
func orAny(m []Match) []Match {
	if m == nil {
		return []Match{{}}
	}
	return m
}

// pairs are key and value of a map, written in place or named.
func (r reader) pairs(data any) [][2]any {
	list := r.members("map", data)
	var pairs [][2]any
	for _, e := range list {
		if p, ok := e.([]any); ok && len(p) == 2 {
			pairs = append(pairs, [2]any{p[0], p[1]})
		}
	}
	return pairs
}

func (r reader) members(kind string, data any) []any {
	switch v := data.(type) {
	case string:
		if name, ok := strings.CutPrefix(v, "@"); ok && r.elements != nil {
			return r.elements(kind, name)
		}
	case map[string]any:
		list, _ := v["set"].([]any)
		return list
	}
	return nil
}

// matches is what a condition says of protocol, port and destination; nil when
// it says nothing that Match can hold.
func (r reader) matches(left, right any) []Match {
	if !relevant(left) {
		return nil
	}
	name, named := right.(string)
	named = named && strings.HasPrefix(name, "@")
	inPlace, isSet := right.(map[string]any)
	if isSet {
		_, isSet = inPlace["set"]
	}
	if !named && !isSet {
		return element1(left, right)
	}
	list := r.members("set", right)
	if len(list) == 0 || len(list) > maxAlternatives {
		return nil
	}
	var all []Match
	for _, e := range list {
		m := element1(left, e)
		if m == nil {
			return nil
		}
		all = append(all, m...)
	}
	return all
}

// relevant says whether a key holds something of Match.
func relevant(key any) bool {
	return slices.ContainsFunc(parts(key), func(k any) bool { return fieldOf(k) != "" })
}

// parts takes a concatenation apart.
func parts(v any) []any {
	if m, ok := v.(map[string]any); ok {
		if list, ok := m["concat"].([]any); ok {
			return list
		}
	}
	return []any{v}
}

// fieldOf names what an expression looks at: "tcp port", "port", "protocol",
// "destination", or "" for what Match does not hold.
func fieldOf(v any) string {
	m, _ := v.(map[string]any)
	if p, ok := m["payload"].(map[string]any); ok {
		protocol, _ := p["protocol"].(string)
		field, _ := p["field"].(string)
		switch {
		case field == "dport" && protocol == "th":
			return "port"
		case field == "dport":
			return protocol + " port"
		case field == "daddr" && (protocol == "ip" || protocol == "ip6"):
			return "destination"
		case protocol == "ip" && field == "protocol", protocol == "ip6" && field == "nexthdr":
			return "protocol"
		}
	}
	if meta, ok := m["meta"].(map[string]any); ok && meta["key"] == "l4proto" {
		return "protocol"
	}
	return ""
}

// element1 is what one element says under a key; nil when that is nothing.
func element1(key, element any) []Match {
	if e, ok := element.(map[string]any); ok {
		// With a comment or counter: {"elem": {"val": …}}.
		if inner, ok := e["elem"].(map[string]any); ok {
			element = inner["val"]
		}
	}
	keys, values := parts(key), parts(element)
	if len(keys) != len(values) {
		return nil
	}
	var m Match
	said := false
	for i, k := range keys {
		one, ok := valueOf(fieldOf(k), values[i])
		if !ok {
			continue
		}
		said = true
		if m, ok = m.And(one); !ok {
			return []Match{}
		}
	}
	if !said {
		return nil
	}
	return []Match{m}
}

func valueOf(field string, v any) (Match, bool) {
	if protocol, ok := strings.CutSuffix(field, " port"); ok {
		m, ok := ports(v)
		m.Protocol = protocol
		return m, ok
	}
	switch field {
	case "port":
		return ports(v)
	case "protocol":
		if name, ok := v.(string); ok {
			return Match{Protocol: name}, true
		}
		for name, n := range map[string]uint16{"tcp": 6, "udp": 17, "sctp": 132, "dccp": 33} {
			if number(v) == n {
				return Match{Protocol: name}, true
			}
		}
	case "destination":
		text, _ := v.(string)
		if a, err := netip.ParseAddr(text); err == nil {
			return Match{Destination: a}, true
		}
	}
	return Match{}, false
}

func ports(v any) (Match, bool) {
	from, to := number(v), number(v)
	if m, ok := v.(map[string]any); ok {
		ends, _ := m["range"].([]any)
		if len(ends) != 2 {
			return Match{}, false
		}
		from, to = number(ends[0]), number(ends[1])
	}
	return Match{From: from, To: to}, from != 0 && from <= to
}

// number is a port or protocol number; 0 for what is none.
func number(v any) uint16 {
	f, ok := v.(float64)
	if !ok || f < 0 || f > math.MaxUint16 || f != math.Trunc(f) {
		return 0
	}
	return uint16(f)
}
