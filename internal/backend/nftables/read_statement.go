package nftables

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"sluice/internal/program"
)

// statement reads one statement of a rule. One that is not known keeps its
// JSON, and no tree that this package makes has such a one.
func statement(v any) Statement {
	if m, isMap := v.(map[string]any); isMap && len(m) == 1 {
		for kind, inner := range m {
			if s, ok := known(kind, inner); ok {
				return s
			}
		}
	}
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // it was JSON
	return Statement{Kind: Unknown, Name: strings.TrimSpace(text.String())}
}

func known(kind string, v any) (Statement, bool) {
	fields, _ := v.(map[string]any)
	switch kind {
	case "match":
		return readMatch(fields)
	case "vmap":
		return readVerdictMap(fields)
	case "accept", "drop", "return", "continue":
		return Statement{Kind: Verdict, Name: kind}, v == nil
	case "jump", "goto":
		target, ok := fields["target"].(string)
		return Statement{Kind: Kind(kind), Name: target}, ok
	case "counter":
		if n, named := v.(string); named {
			return Statement{Kind: Count, Name: n}, true
		}
		return Statement{Kind: Count}, true
	case "limit":
		return readLimit(v)
	case "ct count":
		n, ok := number(fields["val"])
		return Statement{Kind: ConnLimit, Number: n, Over: fields["inv"] == true}, ok
	case "log":
		prefix, _ := fields["prefix"].(string)
		if group, is := number(fields["group"]); is && group != 0 {
			length, _ := number(fields["snaplen"])
			return Statement{Kind: Log, Name: prefix, Number: group}, length == program.LogLength && onlyKeys(fields, "prefix", "group", "snaplen")
		}
		return Statement{Kind: Log, Name: prefix}, onlyKeys(fields, "prefix")
	case "notrack":
		return Statement{Kind: NoTrack}, true
	case "reject":
		return readReject(v, fields)
	case "set":
		return readSet(fields)
	case "mangle":
		return readRewrite(fields)
	case "dnat", "snat":
		return readTranslation(Kind(kind), fields)
	case "masquerade":
		ports, ok := readPorts(fields["port"])
		return Statement{Kind: Masquerade, Ports: ports}, ok && (v == nil || onlyKeys(fields, "port"))
	case "redirect":
		port, hasPort := number(fields["port"])
		return Statement{Kind: Redirect, Number: port}, (v == nil || hasPort) && onlyKeys(fields, "port")
	case "flow":
		table, _ := fields["flowtable"].(string)
		return Statement{Kind: Offload, Name: strings.TrimPrefix(table, "@")}, fields["op"] == "add" && table != ""
	}
	return Statement{}, false
}

func number(v any) (uint64, bool) {
	n, isNumber := v.(json.Number)
	if !isNumber {
		return 0, false
	}
	out, err := strconv.ParseUint(n.String(), 10, 64)
	return out, err == nil
}

func onlyKeys(fields map[string]any, keys ...string) bool {
	for k := range fields {
		found := false
		for _, want := range keys {
			found = found || k == want
		}
		if !found {
			return false
		}
	}
	return true
}

func readMatch(fields map[string]any) (Statement, bool) {
	op, _ := fields["op"].(string)
	field, mask, ok := fieldOfExpr(fields["left"])
	if !ok || op == "" {
		return Statement{}, false
	}
	s := Statement{Kind: Match, Field: field, Mask: mask, Op: op}
	if shift, is := s.partOfWord(); is {
		n, whole := number(fields["right"])
		s.Values = []string{strconv.FormatUint(n<<shift, 10)}
		return s, whole
	}
	right := fields["right"]
	if m, isMap := right.(map[string]any); isMap && m["|"] != nil && op == "!=" && strings.HasPrefix(field, "ct st") {
		right = m["|"] // "!= established | related" is about a list of bits
	}
	if list, isList := right.([]any); isList && mask != "" {
		// Bits of one value: alternatives are listed as a set.
		value, ok := orOf(list)
		s.Values = []string{value}
		return s, ok
	}
	values, set, ok := rightSide(right)
	if !ok {
		return Statement{}, false
	}
	s.Set = set
	if set == "" {
		s.Values = valuesFor(field, values)
	}
	return s, true
}

func readVerdictMap(fields map[string]any) (Statement, bool) {
	field, mask, ok := fieldOfExpr(fields["key"])
	if name, isText := fields["data"].(string); isText {
		name, named := strings.CutPrefix(name, "@")
		return Statement{Kind: VerdictMap, Field: field, Mask: mask, Set: name}, ok && named
	}
	data, _ := fields["data"].(map[string]any)
	pairs, isList := data["set"].([]any)
	if !ok || !isList {
		return Statement{}, false
	}
	s := Statement{Kind: VerdictMap, Field: field, Mask: mask, Map: map[string]string{}}
	for _, p := range pairs {
		pair, _ := p.([]any)
		if len(pair) != 2 {
			return Statement{}, false
		}
		value, ok := valueOf(pair[0])
		verdict, isMap := pair[1].(map[string]any)
		if !ok || !isMap || len(verdict) != 1 {
			return Statement{}, false
		}
		for kind, body := range verdict {
			v, known := known(kind, body)
			if !known || v.Kind != Verdict && v.Kind != Jump && v.Kind != Goto {
				return Statement{}, false
			}
			s.Map[value] = v.text()
		}
	}
	return s, true
}

func readLimit(v any) (Statement, bool) {
	if n, named := v.(string); named {
		return Statement{Kind: RateLimit, Name: n}, true
	}
	fields, _ := v.(map[string]any)
	rate, ok1 := number(fields["rate"])
	burst, ok2 := number(fields["burst"])
	per, ok3 := fields["per"].(string)
	s := Statement{Kind: RateLimit, Rate: Rate{rate, per, burst}, Over: fields["inv"] == true}
	return s, ok1 && ok2 && ok3 && onlyKeys(fields, "rate", "burst", "per", "inv")
}

func readReject(v any, fields map[string]any) (Statement, bool) {
	if v == nil {
		return Statement{Kind: Reject, Name: "icmpx 1"}, true
	}
	kind, _ := fields["type"].(string)
	code, hasCode := number(fields["expr"])
	switch {
	case kind == "tcp reset":
		return Statement{Kind: Reject, Name: kind}, true
	case kind != "" && hasCode:
		return Statement{Kind: Reject, Name: kind + " " + strconv.FormatUint(code, 10)}, true
	}
	return Statement{}, false
}

func readSet(fields map[string]any) (Statement, bool) {
	op, _ := fields["op"].(string)
	set, _ := fields["set"].(string)
	s := Statement{Kind: SetAdd, Op: op, Set: strings.TrimPrefix(set, "@")}
	key := fields["elem"]
	if m, isMap := key.(map[string]any); isMap && m["elem"] != nil {
		e, _ := m["elem"].(map[string]any)
		key = e["val"]
		if e["timeout"] != nil {
			n, ok := number(e["timeout"])
			if !ok {
				return Statement{}, false
			}
			s.Number = n
		}
		if !onlyKeys(e, "val", "timeout") {
			return Statement{}, false
		}
	}
	var ok bool
	s.Field, s.Mask, ok = fieldOfExpr(key)
	inner, _ := fields["stmt"].([]any)
	for _, item := range inner {
		m, _ := item.(map[string]any)
		if len(m) != 1 {
			return Statement{}, false
		}
		for kind, body := range m {
			st, good := known(kind, body)
			if !good {
				return Statement{}, false
			}
			s.Inner = append(s.Inner, st)
		}
	}
	return s, ok && op != "" && s.Set != "" && onlyKeys(fields, "op", "set", "elem", "stmt")
}

func readRewrite(fields map[string]any) (Statement, bool) {
	field, mask, ok := fieldOfExpr(fields["key"])
	if !ok || mask != "" {
		return Statement{}, false
	}
	s := Statement{Kind: Rewrite, Field: field}
	if other, under, is := fieldOfExpr(fields["value"]); is && under == "" && other != field {
		s.Values = []string{other}
		return s, true
	}
	keep, value, ok := newValue(fields["value"], field)
	if !ok {
		return Statement{}, false
	}
	s.Name = bitsText(value, field)
	if keep.Sign() != 0 {
		s.Mask = bitsText(keep, field)
	}
	return s, true
}

func readTranslation(kind Kind, fields map[string]any) (Statement, bool) {
	family, _ := fields["family"].(string)
	s := Statement{Kind: kind, Name: family}
	if m, isMap := fields["addr"].(map[string]any); isMap && m["map"] != nil {
		return readPrefixMap(s, m["map"], fields)
	}
	address, ok := valueOf(fields["addr"])
	s.Values = []string{address}
	ports, known := readPorts(fields["port"])
	if !known {
		return Statement{}, false
	}
	if s.Ports = ports; kind == DNAT && ports != "" {
		n, err := strconv.ParseUint(ports, 10, 16)
		if err != nil {
			return Statement{}, false
		}
		s.Ports, s.Number = "", n
	}
	return s, ok && onlyKeys(fields, "family", "addr", "port")
}

// readPorts reads the port of a rewriting, or its range: "" is none.
func readPorts(v any) (string, bool) {
	if v == nil {
		return "", true
	}
	if n, ok := number(v); ok {
		return strconv.FormatUint(n, 10), true
	}
	m, _ := v.(map[string]any)
	ends, _ := m["range"].([]any)
	if len(ends) != 2 {
		return "", false
	}
	first, ok1 := number(ends[0])
	last, ok2 := number(ends[1])
	return fmt.Sprintf("%d-%d", first, last), ok1 && ok2
}

// readPrefixMap reads "prefix to ip daddr map { from : to }".
func readPrefixMap(s Statement, body any, fields map[string]any) (Statement, bool) {
	through, _ := body.(map[string]any)
	field, mask, ok := fieldOfExpr(through["key"])
	data, _ := through["data"].(map[string]any)
	pairs, _ := data["set"].([]any)
	side := map[Kind]string{DNAT: "daddr", SNAT: "saddr"}[s.Kind]
	if !ok || mask != "" || field != s.Name+" "+side || len(pairs) != 1 {
		return Statement{}, false
	}
	pair, _ := pairs[0].([]any)
	if len(pair) != 2 {
		return Statement{}, false
	}
	from, ok1 := valueOf(pair[0])
	to, ok2 := valueOf(pair[1])
	s.Kind += " prefix"
	s.Values = []string{from, to}
	return s, ok1 && ok2 && onlyKeys(fields, "family", "addr", "flags", "type_flags")
}
