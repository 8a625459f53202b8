package nftables

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// normal brings the statements of a rule into the one form in which rules are
// compared. nft lists some things in another form than it was given, and which
// one depends on its version; each function below is one of those. What is
// loaded keeps its own form: a condition on the family that nft does not list
// may still be needed.
func normal(statements []Statement) []Statement {
	out := withProtocol(statements)
	for i := range out {
		out[i] = oneBit(wholeMask(tcpFlagBits(oneState(anyPorts(out[i])))))
		if out[i].Kind == SetAdd {
			out[i].Inner = normal(out[i].Inner)
		}
	}
	return withoutImplied(out)
}

// asksKey says whether a statement looks a key up: a concatenation, or one value
// in a named set or a verdict map.
func asksKey(s Statement, parts []string) bool {
	return (s.Kind == Match || s.Kind == VerdictMap) && (len(parts) > 1 || s.Set != "")
}

// withProtocol says the protocol of a port in a key just before the key: nft lists it by
// the port's name alone, wherever the rule asked for it.
func withProtocol(statements []Statement) []Statement {
	out := make([]Statement, 0, len(statements)+1)
	for _, s := range statements {
		if parts := strings.Split(s.Field, " . "); asksKey(s, parts) {
			for _, p := range parts {
				header, field, _ := strings.Cut(p, " ")
				if field != "sport" && field != "dport" {
					continue
				}
				if n := protocolOf[header]; n != "" && !asksProtocol(out, n) {
					out = append(out, Statement{Kind: Match, Field: "meta l4proto", Op: "==", Values: []string{n}})
				}
				out = protocolLast(out)
			}
		}
		out = append(out, s)
	}
	return out
}

// protocolLast puts the one condition on the protocol behind the other conditions that
// follow it, where nothing but conditions do.
func protocolLast(statements []Statement) []Statement {
	last := slices.IndexFunc(statements, func(s Statement) bool {
		return s.Kind == Match && s.Field == "meta l4proto" && s.Op == "==" && len(s.Values) == 1
	})
	if last < 0 || slices.ContainsFunc(statements[last:], func(s Statement) bool { return s.Kind != Match }) {
		return statements
	}
	asked := statements[last]
	return append(slices.Delete(statements, last, last+1), asked)
}

func asksProtocol(statements []Statement, number string) bool {
	return slices.ContainsFunc(statements, func(s Statement) bool {
		return s.Kind == Match && s.Field == "meta l4proto" && s.Op == "==" && slices.Equal(s.Values, []string{number})
	})
}

// anyPorts: nft names ports in a key by the protocol, where the rule
// has asked for one before.
func anyPorts(s Statement) Statement {
	parts := strings.Split(s.Field, " . ")
	if !asksKey(s, parts) {
		return s
	}
	for i, p := range parts {
		header, field, _ := strings.Cut(p, " ")
		if protocolOf[header] != "" && (field == "sport" || field == "dport") {
			parts[i] = "th " + field
		}
	}
	s.Field = strings.Join(parts, " . ")
	return s
}

// oneState: a packet has one state and one direction, so "one of these bits" is
// "one of these values".
func oneState(s Statement) Statement {
	if s.Kind != Match || s.Field != "ct state" && s.Field != "ct direction" {
		return s
	}
	switch s.Op {
	case "in":
		s.Op = "=="
	case "!":
		s.Op = "!="
	}
	return s
}

// tcpFlagBits: nft lists "flags & mask != 0" as flags that are in a list, and
// "== 0" as flags that are not.
func tcpFlagBits(s Statement) Statement {
	if s.Kind != Match || s.Field != "tcp flags" || s.Mask != "" || s.Op != "in" && s.Op != "!" {
		return s
	}
	var mask uint64
	for _, v := range s.Values {
		n, err := strconv.ParseUint(v, 10, 8)
		if err != nil {
			return s
		}
		mask |= n
	}
	s.Mask = strconv.FormatUint(mask, 10)
	s.Values = []string{"0"}
	if s.Op == "in" {
		s.Op = "!="
	} else {
		s.Op = "=="
	}
	return s
}

// oneBit: of one bit, "is on" is "is not off".
func oneBit(s Statement) Statement {
	if s.Kind != Match || s.Field != "tcp flags" || s.Mask == "" || len(s.Values) != 1 || s.Values[0] != s.Mask {
		return s
	}
	n, err := strconv.ParseUint(s.Mask, 10, 8)
	if err != nil || bits.OnesCount64(n) != 1 {
		return s
	}
	s.Values = []string{"0"}
	switch s.Op {
	case "==":
		s.Op = "!="
	case "!=":
		s.Op = "=="
	}
	return s
}

// wholeMask: a mask of all eight bits is none.
func wholeMask(s Statement) Statement {
	if s.Kind == Match && s.Field == "tcp flags" && s.Mask == "255" {
		s.Mask = ""
	}
	return s
}

// partOfWord puts flags that nft 1.1 lists as a part of the bytes around them back to
// where they lie there, and gives how far from the end.
func (s *Statement) partOfWord() (shift int, is bool) {
	var from, width int
	if !strings.HasPrefix(s.Field, "@th,") {
		return 0, false // the most
	}
	if n, err := fmt.Sscanf(s.Field, "@th,%d,%d", &from, &width); n < 2 || err != nil || s.Mask != "" || width < 1 || from < 104 || from+width > 112 {
		return 0, false
	}
	shift = 128 - from - width
	s.Field, s.Mask = flagsWord, strconv.FormatUint((1<<width-1)<<shift, 10)
	return shift, true
}

// withoutImplied takes out conditions on the family and the protocol that nft
// lists or not, because another statement of the rule implies them.
func withoutImplied(statements []Statement) []Statement {
	family, protocol := map[string]bool{}, map[string]bool{}
	for _, s := range statements {
		switch s.Kind {
		case Match, VerdictMap, SetAdd, Rewrite:
		case Reject:
			if s.Name == "tcp reset" {
				protocol["6"] = true // nft asks for TCP by itself
			}
			continue
		case DNATPrefix, SNATPrefix:
			family[map[string]string{"ip": "2", "ip6": "10"}[s.Name]] = true
			continue
		default:
			continue
		}
		for part := range strings.SplitSeq(s.Field, " . ") {
			first, _, _ := strings.Cut(strings.TrimPrefix(part, "ct original "), " ")
			switch first {
			case "ip", "icmp":
				family["2"] = true
			case "ip6", "icmpv6", "exthdr", "frag", "rt", "hbh", "dst", "mh":
				family["10"] = true
			}
			if n := protocolOf[first]; n != "" {
				protocol[n] = true
			}
		}
		if s.Field == "meta l4proto" && s.Op == "==" && len(s.Values) == 1 {
			switch s.Values[0] {
			case "1":
				family["2"] = true
			case "58":
				family["10"] = true
			}
		}
	}
	return slices.DeleteFunc(statements, func(s Statement) bool {
		if s.Kind != Match || s.Op != "==" || len(s.Values) != 1 || s.Mask != "" {
			return false
		}
		return s.Field == "meta nfproto" && family[s.Values[0]] || s.Field == "meta l4proto" && protocol[s.Values[0]]
	})
}

var protocolOf = map[string]string{
	"tcp": "6", "udp": "17", "icmp": "1", "icmpv6": "58", "sctp": "132", "dccp": "33", "udplite": "136", "ah": "51", "esp": "50", "comp": "108",
}
