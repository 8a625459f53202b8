package nftables

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

// programFields are the fields of a program by those of nft that a program is lowered
// to, or that nft lists in their place.
var programFields = func() map[string]program.Field {
	out := map[string]program.Field{
		"iif": program.InInterface, "oif": program.OutInterface, "ip protocol": program.Protocol,
		"ip dscp": program.DSCP, "ip6 dscp": program.DSCP, "ct original proto-dst": program.OriginalPort,
	}
	for _, words := range []map[program.Field]string{plainFields, keyFields} {
		for f, word := range words {
			out[word] = f
		}
	}
	for f, word := range addressFields {
		for _, family := range families {
			out[fmt.Sprintf(word, ipOf(family))] = f
		}
	}
	return out
}()

// asksNames says whether the values of a field of nft have names in a program.
func asksNames(field string) bool { return names[programFields[field]] != nil }

// fieldInKernel tells which field of a program a field of nft is that holds no names.
func fieldInKernel(field string) (program.Field, bool) {
	if f, is := programFields[field]; is && !asksNames(field) {
		return f, true
	}
	header, part, _ := strings.Cut(field, " ")
	if portHeaders[numberOf(protocolOf[header])] == header {
		switch part {
		case "dport":
			return program.Port, true
		case "sport":
			return program.SourcePort, true
		}
	}
	return "", false
}

func numberOf(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}

// impliedBy is what nft or the kernel asks of a packet before it looks at a field:
// a field that a packet does not have fits no condition.
func impliedBy(field string) []program.Condition {
	var out []program.Condition
	for part := range strings.SplitSeq(field, " . ") {
		first, _, _ := strings.Cut(strings.TrimPrefix(part, "ct original "), " ")
		switch first {
		case "ip", "icmp":
			out = append(out, familyCondition(4)...)
		case "ip6", "icmpv6", "exthdr", "frag":
			out = append(out, familyCondition(6)...)
		}
		if n := protocolOf[first]; n != "" {
			out = append(out, protocolCondition(n)...)
		}
	}
	return out
}

// looksInto is what nft asks of a packet before an unknown statement looks into its headers,
// as in "snat to jhash udp sport": the text that it lists does not say that.
func (s Statement) looksInto() (out []program.Condition) {
	var said any
	_ = json.Unmarshal([]byte(s.Name), &said) // what is another thing looks nowhere
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, one := range v {
				walk(one)
			}
		case map[string]any:
			if header, is := v["payload"].(map[string]any); is {
				protocol, _ := header["protocol"].(string)
				out = append(out, impliedBy(protocol)...)
			}
			for _, key := range slices.Sorted(maps.Keys(v)) {
				walk(v[key])
			}
		}
	}
	walk(said)
	return out
}

// conditions lifts a match.
func (w *ruleLifter) conditions(s Statement) ([]program.Condition, error) {
	implied := impliedBy(s.Field)
	if s.Set != "" {
		c, err := w.inSet(s)
		if err != nil {
			return nil, err
		}
		return append(implied, c), nil
	}
	more, err := w.plain(s)
	return append(implied, more...), err
}

func (w *ruleLifter) plain(s Statement) ([]program.Condition, error) {
	switch {
	case s.Field == "meta nfproto":
		return familyOfNumber(s)
	case s.Field == "ct label" || s.Field == "ct expiration" || s.Field == "socket mark" || s.Field == "meta cgroup":
		return handshakeAsked(s)
	case s.Field == "ip frag-off" || s.Field == "frag frag-off" || strings.HasPrefix(s.Field, "exthdr "):
		return fragments(s)
	case asksNames(s.Field):
		return namesAsked(s)
	}
	if flags, is := s.asFlags(); is {
		if !w.about(func(n uint64) bool { return n == tcp }) {
			return nil, errors.New("flags of an unknown protocol")
		}
		s = flags
	}
	field, known := fieldInKernel(s.Field)
	if !known {
		return nil, errUnknown
	}
	c := program.Condition{Field: field}
	s = wholeMask(tcpFlagBits(s))
	if s.Op == "!=" {
		c.Not = true
	} else if s.Op != "==" && !ordered(s) {
		return nil, errUnknown
	}
	if s.Mask != "" {
		mask, err := strconv.ParseUint(s.Mask, 10, 64)
		if err != nil || field != program.TCPFlags && field != program.Mark {
			return nil, fmt.Errorf("the mask %s is not known", s.Mask)
		}
		c.Mask = mask
	}
	switch field {
	case program.InInterface, program.OutInterface:
		c.Names = s.Values
		return []program.Condition{c}, nil
	case program.Source, program.Destination, program.OriginalSource, program.OriginalDestination:
		var b addrset.Builder
		for _, v := range s.Values {
			r, err := addrset.ParseRange(v)
			if err != nil {
				return nil, err
			}
			b.AddRange(r)
		}
		return []program.Condition{addressCondition(field, b.Set(), c.Not)}, nil
	case program.Port, program.SourcePort:
		if strings.HasPrefix(s.Field, "th ") && !w.portsKnown() {
			return nil, fmt.Errorf("ports of an unknown protocol")
		}
	}
	var err error
	c.Numbers, err = numbersAsked(s)
	return []program.Condition{c}, err
}

// asFlags gives the match on TCP flags that one on the bytes around them is.
func (s Statement) asFlags() (Statement, bool) {
	if s.Kind != Match || s.Field != flagsWord || len(s.Values) != 1 || s.Op != "==" && s.Op != "!=" {
		return s, false
	}
	mask, value := numberOf(s.Mask), numberOf(s.Values[0])
	if mask == 0 || mask&^(math.MaxUint8<<flagsShift) != 0 || value&^mask != 0 || s.Values[0] != strconv.FormatUint(value, 10) {
		return s, false
	}
	s.Field, s.Mask, s.Values = plainFields[program.TCPFlags], strconv.FormatUint(mask>>flagsShift, 10), []string{strconv.FormatUint(value>>flagsShift, 10)}
	return s, true
}

// flagsLast puts flags behind what is asked beside them: by then the protocol is known.
func flagsLast(statements []Statement) []Statement {
	end := slices.IndexFunc(statements, func(s Statement) bool { return s.Kind != Match })
	if end < 0 {
		end = len(statements)
	}
	is := func(s Statement) bool { return s.Field == flagsWord }
	i := slices.IndexFunc(statements[:end], is)
	if i < 0 {
		return statements
	}
	return slices.Concat(statements[:i], statements[i+1:end], statements[i:i+1], statements[end:])
}

// handshakeAsked lifts what ofHandshake lowers.
func handshakeAsked(s Statement) ([]program.Condition, error) {
	name := ""
	switch {
	case s.Mask != "" || s.Set != "" || len(s.Values) != 1:
	case s.Field == "ct label" && (s.Op == "in" || s.Op == "=="):
		if n, err := strconv.ParseUint(s.Values[0], 10, 7); err == nil {
			name = program.Label(uint8(n))
		}
	case s.Field == "ct expiration" && s.Op == "<" && s.Values[0] == closedBefore:
		name = program.Closed
	case s.Op == ">=" && s.Values[0] == "0":
		for status, field := range socketFields {
			if field == s.Field {
				name = status
			}
		}
	}
	if name == "" {
		return nil, errUnknown
	}
	return []program.Condition{{Field: program.Status, Names: []string{name}}}, nil
}

// portsKnown says whether the rule is about protocols with ports alone.
func (w *ruleLifter) portsKnown() bool {
	return w.about(func(n uint64) bool { return portHeaders[n] != "" })
}

// about says whether the rule is about some protocols alone.
func (w *ruleLifter) about(some func(protocol uint64) bool) bool {
	return slices.ContainsFunc(slices.Concat(w.above, w.match), func(c program.Condition) bool {
		if c.Field != program.Protocol || c.Not || c.Set != "" {
			return false
		}
		for _, r := range c.Numbers {
			if r.To-r.From > math.MaxUint8 {
				return false
			}
			for n := r.From; n <= r.To; n++ {
				if !some(n) {
					return false
				}
			}
		}
		return true
	})
}

// ordered says whether a match compares by order.
func ordered(s Statement) bool {
	return len(s.Values) == 1 && (s.Op == "<" || s.Op == "<=" || s.Op == ">" || s.Op == ">=")
}

func numbersAsked(s Statement) ([]program.NumberRange, error) {
	var out []program.NumberRange
	for _, v := range s.Values {
		n, ok := parseNumberValue(v)
		if !ok {
			return nil, fmt.Errorf("the value %q is not a number", v)
		}
		out = append(out, n)
	}
	if !ordered(s) {
		return out, nil
	}
	n := out[0].From
	switch {
	case s.Op == "<" && n > 0:
		return []program.NumberRange{{To: n - 1}}, nil
	case s.Op == "<=":
		return []program.NumberRange{{To: n}}, nil
	case s.Op == ">" && n < math.MaxUint32:
		return []program.NumberRange{{From: n + 1, To: math.MaxUint32}}, nil
	case s.Op == ">=":
		return []program.NumberRange{{From: n, To: math.MaxUint32}}, nil
	}
	return nil, errUnknown
}

func familyOfNumber(s Statement) ([]program.Condition, error) {
	c := program.Condition{Field: program.Family, Not: s.Op == "!="}
	if s.Op != "==" && s.Op != "!=" || s.Mask != "" {
		return nil, errUnknown
	}
	for family, number := range nfproto {
		if valuesHold(s.Values, numberOf(number)) {
			c.Numbers = append(c.Numbers, familyCondition(family)[0].Numbers...)
		}
	}
	sorting.By(c.Numbers, func(a, b program.NumberRange) int { return int(a.From) - int(b.From) }) //nolint:gosec // 4 or 6
	if len(c.Numbers) == 0 {
		return nil, errUnknown
	}
	return []program.Condition{c}, nil
}

// fragments lifts what is asked of fragments and of headers that IPv6 packets may
// have. A field of a header that a packet lacks fits no condition.
func fragments(s Statement) ([]program.Condition, error) {
	one := []program.NumberRange{{From: 1, To: 1}}
	switch {
	case s.Field == "ip frag-off" && s.Mask == "8191" && slices.Equal(s.Values, []string{"0"}) && (s.Op == "==" || s.Op == "!="):
		return []program.Condition{{Field: program.Fragment, Numbers: one, Not: s.Op == "=="}}, nil
	case s.Field == "frag frag-off" && s.Mask == "" && slices.Equal(s.Values, []string{"0"}) && s.Op == "!=":
		return []program.Condition{{Field: program.Fragment, Numbers: one}}, nil
	}
	header, is := strings.CutPrefix(s.Field, "exthdr ")
	for number, name := range extensions {
		if is && name == header && s.Op == "==" && len(s.Values) == 1 && (s.Values[0] == "exists" || s.Values[0] == "missing") {
			return []program.Condition{{
				Field: program.Extension, Not: s.Values[0] == "missing",
				Numbers: []program.NumberRange{{From: number, To: number}},
			}}, nil
		}
	}
	return nil, errUnknown
}

// namesAsked lifts a field whose values have names. Of a connection's status several
// bits hold at once.
func namesAsked(s Statement) ([]program.Condition, error) {
	field := programFields[s.Field]
	c := program.Condition{Field: field}
	if field != program.Status {
		s = oneState(s)
	}
	switch {
	case s.Mask != "":
		return nil, errUnknown
	case s.Op == "in" && field == program.Status, s.Op == "==" && field != program.Status:
	case s.Op == "!" && field == program.Status, s.Op == "!=" && field != program.Status:
		c.Not = true
	default:
		return nil, errUnknown
	}
	for _, v := range s.Values {
		name := wordOf(field, v)
		if name == "" {
			return nil, fmt.Errorf("the value %q is not known", v)
		}
		c.Names = append(c.Names, name)
	}
	return []program.Condition{c}, nil
}

func wordOf(field program.Field, number string) string {
	for name, n := range names[field] {
		if n == number {
			return name
		}
	}
	return ""
}

// inSet lifts a lookup.
func (w *ruleLifter) inSet(s Statement) (program.Condition, error) {
	k := w.lifter.tree.set(s.Set)
	if k == nil {
		return program.Condition{}, fmt.Errorf("there is no set %s", s.Set)
	}
	if s.Op != "==" && s.Op != "!=" {
		return program.Condition{}, errUnknown
	}
	if f, known := fieldInKernel(s.Field); known && k.follows() && !w.lifter.tree.differs(k) {
		w.lifter.follow(k)
		return program.Condition{Field: f, Names: []string{program.DefaultRoute}, Not: s.Op == "!="}, nil
	}
	key, err := w.key(s.Field)
	if err != nil {
		return program.Condition{}, err
	}
	if err := maskOfSet(s, k); err != nil {
		return program.Condition{}, err
	}
	id, err := w.set(k, key)
	if err != nil {
		return program.Condition{}, err
	}
	c := program.Condition{Field: key[0], Set: id, Not: s.Op == "!="}
	if len(key) > 1 {
		c.SetKey = key
	}
	return c, nil
}

// maskOfSet: sets that the kernel fills with sources hold addresses cut by keyMask, and no
// other lookup has a mask.
func maskOfSet(s Statement, k *Set) error {
	want := ""
	if ip, _, is := strings.Cut(s.Field, " "); is && k.Life == program.Dynamic && !k.byCommand() && !k.Others && (ip == "ip" || ip == "ip6") {
		want = keyMask(dynamicID(k.Name), k.family())
	}
	if s.Mask != want {
		return fmt.Errorf("the mask %q of %s is not known", s.Mask, s.Field)
	}
	return nil
}

// key tells the fields of a lookup.
func (w *ruleLifter) key(field string) ([]program.Field, error) {
	if asksNames(field) {
		return nil, errUnknown
	}
	var out []program.Field
	for part := range strings.SplitSeq(field, " . ") {
		f, known := fieldInKernel(part)
		if !known {
			return nil, fmt.Errorf("%s is not known", part)
		}
		if strings.HasPrefix(part, "th ") && !strings.Contains(field, "meta l4proto") && !w.portsKnown() {
			return nil, fmt.Errorf("ports of an unknown protocol")
		}
		out = append(out, f)
	}
	return out, nil
}
