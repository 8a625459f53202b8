package nftables

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/internal/base/addrset"
)

// valueOf gives the one form of a value that is a constant.
func valueOf(v any) (string, bool) {
	switch v := v.(type) {
	case json.Number:
		n, err := strconv.ParseUint(v.String(), 10, 64)
		return strconv.FormatUint(n, 10), err == nil
	case bool:
		if v {
			return "exists", true
		}
		return "missing", true
	case string:
		return textValue(v), true
	case map[string]any:
		return compound(v)
	}
	return "", false
}

// textValue brings an address and a moment to their one form and undoes a fault of nft 1.0.6,
// which prints numbers of some fields as "0x50 [invalid type]".
func textValue(text string) string {
	if hex, bad := strings.CutSuffix(text, " [invalid type]"); bad {
		if n, err := strconv.ParseUint(strings.TrimPrefix(hex, "0x"), 16, 64); err == nil {
			return strconv.FormatUint(n, 10)
		}
	}
	if t, err := time.Parse(time.DateTime, text); err == nil { // nft is run in UTC
		return strconv.FormatInt(t.Unix(), 10)
	}
	if strings.ContainsAny(text, ".:") {
		if r, err := addrset.ParseRange(text); err == nil {
			return r.String()
		}
	}
	return text
}

func compound(v map[string]any) (string, bool) {
	if len(v) != 1 {
		return "", false
	}
	for kind, body := range v {
		switch kind {
		case "prefix":
			fields, _ := body.(map[string]any)
			addr, _ := fields["addr"].(string)
			length, isNumber := fields["len"].(json.Number)
			if addr == "" || !isNumber {
				return "", false
			}
			return textValue(addr + "/" + length.String()), true
		case "range":
			ends, _ := body.([]any)
			if len(ends) != 2 {
				return "", false
			}
			from, ok1 := valueOf(ends[0])
			to, ok2 := valueOf(ends[1])
			return textValue(from + "-" + to), ok1 && ok2
		case "concat":
			parts, _ := body.([]any)
			out := make([]string, len(parts))
			for i, p := range parts {
				text, ok := valueOf(p)
				if !ok {
					return "", false
				}
				out[i] = text
			}
			return strings.Join(out, " . "), len(out) > 0
		case "elem":
			fields, _ := body.(map[string]any)
			return valueOf(fields["val"])
		case "|":
			return orOf(body)
		}
	}
	return "", false
}

// orOf joins bits that are listed apart.
func orOf(v any) (string, bool) {
	list, isList := v.([]any)
	if !isList {
		return valueOf(v)
	}
	var out uint64
	for _, item := range list {
		text, ok := valueOf(item)
		n, err := strconv.ParseUint(text, 10, 64)
		if !ok || err != nil {
			return "", false
		}
		out |= n
	}
	return strconv.FormatUint(out, 10), true
}

// fieldOfExpr gives what an expression looks at, and under which mask.
func fieldOfExpr(v any) (field, mask string, ok bool) {
	m, _ := v.(map[string]any)
	if len(m) != 1 {
		return "", "", false
	}
	for kind, body := range m {
		fields, _ := body.(map[string]any)
		text := func(key string) string { s, _ := fields[key].(string); return s }
		switch kind {
		case "payload":
			if text("protocol") == "" {
				return rawPayload(fields)
			}
			if !onlyKeys(fields, "protocol", "field") {
				return "", "", false // of a packet within a tunnel
			}
			return text("protocol") + " " + text("field"), "", text("field") != ""
		case "meta":
			key := text("key")
			switch key {
			case "iif", "oif", "iifname", "oifname":
				return key, "", true
			}
			return "meta " + key, "", key != ""
		case "ct":
			if dir := text("dir"); dir != "" {
				return "ct " + dir + " " + text("key"), "", true
			}
			return "ct " + text("key"), "", text("key") != ""
		case "fib":
			list, _ := fields["flags"].([]any)
			flags := make([]string, 0, len(list))
			for _, f := range list {
				s, _ := f.(string)
				flags = append(flags, s)
			}
			if s := text("flags"); s != "" {
				flags = append(flags, s)
			}
			return "fib " + strings.Join(flags, " . ") + " " + text("result"), "", len(flags) > 0
		case "exthdr":
			if f := text("field"); f != "" {
				return text("name") + " " + f, "", true
			}
			return "exthdr " + text("name"), "", text("name") != ""
		case "tcp option":
			return "tcp option " + text("name") + " " + text("field"), "", text("field") != ""
		case "socket":
			return "socket " + text("key"), "", text("key") != ""
		case "rt":
			return "rt " + text("key"), "", text("key") != ""
		case "concat":
			return concatField(body)
		case "&":
			return maskedField(body)
		}
	}
	return "", "", false
}

// rawPayload is a part of the packet without a name: "@nh,96,8".
func rawPayload(fields map[string]any) (string, string, bool) {
	base, isBase := fields["base"].(string)
	offset, hasOffset := number(fields["offset"])
	width, hasWidth := number(fields["len"])
	return fmt.Sprintf("@%s,%d,%d", base, offset, width), "", isBase && hasOffset && hasWidth && onlyKeys(fields, "base", "offset", "len")
}

func concatField(body any) (string, string, bool) {
	list, _ := body.([]any)
	parts := make([]string, len(list))
	for i, item := range list {
		field, mask, ok := fieldOfExpr(item)
		if !ok || mask != "" {
			return "", "", false
		}
		parts[i] = field
	}
	return strings.Join(parts, " . "), "", len(parts) > 0
}

func maskedField(body any) (string, string, bool) {
	sides, _ := body.([]any)
	if len(sides) != 2 {
		return "", "", false
	}
	field, inner, ok := fieldOfExpr(sides[0])
	if !ok || inner != "" {
		return "", "", false
	}
	mask, ok := orOf(sides[1])
	return field, mask, ok
}

// newValue reads what a statement writes to a field. Every mixture of and, or
// and xor of the old value with constants is old & mask ^ value.
func newValue(v any, field string) (mask, value *big.Int, ok bool) {
	all := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), fieldBits(field)), big.NewInt(1))
	if own, under, is := fieldOfExpr(v); is && own == field && under == "" {
		return all, new(big.Int), true
	}
	if m, isMap := v.(map[string]any); isMap && len(m) == 1 {
		for op, body := range m {
			sides, _ := body.([]any)
			if len(sides) < 2 || op != "&" && op != "|" && op != "^" {
				break
			}
			mask, value, ok = newValue(sides[0], field)
			for _, side := range sides[1:] {
				zero, constant, isConstant := newValue(side, field)
				if !ok || !isConstant || zero.Sign() != 0 {
					return nil, nil, false
				}
				switch op {
				case "&":
					mask, value = mask.And(mask, constant), value.And(value, constant)
				case "|":
					mask, value = mask.AndNot(mask, constant), value.Or(value, constant)
				case "^":
					value = value.Xor(value, constant)
				}
			}
			return mask, value, ok
		}
	}
	if list, isList := v.([]any); isList {
		text, isBits := orOf(list)
		n, good := new(big.Int).SetString(text, 10)
		return new(big.Int), n, isBits && good
	}
	text, isValue := valueOf(v)
	if !isValue {
		return nil, nil, false
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return new(big.Int), new(big.Int).SetBytes(a.AsSlice()), true
	}
	n, good := new(big.Int).SetString(text, 10)
	return new(big.Int), n, good
}

func fieldBits(field string) uint {
	if strings.HasPrefix(field, "ip6 ") && strings.HasSuffix(field, "addr") {
		return 128
	}
	return 32
}

// bitsText writes bits of a field as a value of it.
func bitsText(n *big.Int, field string) string {
	if !strings.HasSuffix(field, "addr") || n.Sign() < 0 || uint(n.BitLen()) > fieldBits(field) {
		return n.String()
	}
	a, _ := netip.AddrFromSlice(n.FillBytes(make([]byte, fieldBits(field)/8)))
	return a.String()
}

// rightSide gives the values or the set that a field is compared with.
func rightSide(v any) (values []string, set string, ok bool) {
	if text, isText := v.(string); isText {
		if name, isSet := strings.CutPrefix(text, "@"); isSet {
			return nil, name, true
		}
	}
	list, isList := v.([]any)
	if m, isMap := v.(map[string]any); isMap {
		if body, isSet := m["set"]; isSet {
			if list, isList = body.([]any); !isList {
				list, isList = []any{body}, true
			}
		}
	}
	if !isList {
		list = []any{v}
	}
	for _, item := range list {
		text, good := valueOf(item)
		if !good {
			return nil, "", false
		}
		values = append(values, text)
	}
	return values, "", len(values) > 0
}

// valuesFor brings the values of a field in order: names and bits are never
// merged into ranges.
func valuesFor(field string, values []string) []string {
	switch {
	case strings.HasPrefix(field, "ct st"), strings.HasPrefix(field, "ct direction"), strings.HasPrefix(field, "fib"):
		return separate(values)
	case field == "iifname", field == "oifname":
		out := slices.Clone(values)
		slices.Sort(out)
		return slices.Compact(out)
	}
	return normalValues(values)
}
