package geo

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net/netip"
	"strings"

	"sluice/internal/base/addrset"
)

// readCSV reads lines of start,end,country; what follows on a line is ignored.
// Fields may be quoted. Addresses are written as such or as decimal numbers;
// numbers are IPv4 when both of a line are below 1<<32. A first line of column
// names is skipped.
func readCSV(r io.Reader, name string, t *Table) error {
	first := true
	return lines(r, name, func(_ int, text string) error {
		wasFirst := first
		first = false
		fields := strings.SplitN(text, ",", 4)
		for i := range fields {
			fields[i] = unquote(fields[i])
		}
		if wasFirst && isHeading(fields) {
			return nil
		}
		if len(fields) < 3 {
			return fmt.Errorf("expected start,end,country, found %q", cut(text))
		}
		from, to, err := parsePair(fields[0], fields[1])
		if err != nil {
			return err
		}
		code := strings.ToUpper(fields[2])
		if noCountry(code) {
			return nil
		}
		return t.Add(from, to, code)
	})
}

func unquote(s string) string {
	s = strings.TrimSpace(s)
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return s[1 : len(s)-1]
	}
	return s
}

// isHeading reports whether neither of the first two fields could have been
// meant as an address.
func isHeading(fields []string) bool {
	if len(fields) < 3 {
		return false
	}
	for _, f := range fields[:2] {
		if f == "" || strings.ContainsAny(f, ".:") || strings.Trim(f, "0123456789") == "" {
			return false
		}
	}
	return true
}

func parsePair(first, last string) (from, to netip.Addr, err error) {
	from, to, err = parseAddrs(first, last)
	if err != nil {
		return from, to, err
	}
	from, to = place(from, to)
	switch {
	case from.BitLen() != to.BitLen():
		return from, to, fmt.Errorf("range from %s to %s mixes IPv4 and IPv6", first, last)
	case to.Less(from):
		return from, to, fmt.Errorf("range from %s to %s is reversed", first, last)
	}
	return from, to, nil
}

func parseAddrs(first, last string) (from, to netip.Addr, err error) {
	if isNumber(first) && isNumber(last) {
		a, err := parseNum(first)
		if err != nil {
			return from, to, err
		}
		b, err := parseNum(last)
		if err != nil {
			return from, to, err
		}
		is4 := !addrset.LastNumber(true).Less(a) && !addrset.LastNumber(true).Less(b)
		return a.Addr(is4), b.Addr(is4), nil
	}
	for _, f := range [...]struct {
		text string
		addr *netip.Addr
	}{{first, &from}, {last, &to}} {
		a, err := netip.ParseAddr(f.text)
		if err != nil || a.Zone() != "" {
			return from, to, fmt.Errorf("%q is not an IP address", cut(f.text))
		}
		*f.addr = a
	}
	return from, to, nil
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// parseNum reads up to 128 bits in decimal.
func parseNum(s string) (num, error) {
	var n num
	for _, c := range []byte(s) {
		hi1, lo := bits.Mul64(n.Lo, 10)
		hi2, hi := bits.Mul64(n.Hi, 10)
		hi, carry := bits.Add64(hi, hi1, 0)
		if hi2 != 0 || carry != 0 {
			return num{}, errTooLarge
		}
		next := num{Hi: hi, Lo: lo}.Add(num{Lo: uint64(c - '0')})
		if next.Less(num{Hi: hi, Lo: lo}) {
			return num{}, errTooLarge
		}
		n = next
	}
	return n, nil
}

var errTooLarge = errors.New("a number is larger than any IPv6 address")

// cut shortens what a message quotes.
func cut(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}
