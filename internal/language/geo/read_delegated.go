package geo

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/internal/base/addrset"
)

// The registries' statistics exchange format, "delegated" and
// "delegated-extended" (https://www.apnic.net/about-apnic/corporate-documents/documents/resource-guidelines/rir-statistics-exchange-format/):
//
//	version|registry|serial|records|startdate|enddate|UTCoffset
//	registry|*|type|*|count|summary
//	registry|cc|type|start|value|date|status[|opaque-id...]
//
// value is a number of addresses for ipv4 and a prefix length for ipv6. The
// summaries count the records of each type, so a file that was cut off shows.

// isDelegated reports whether the first line that is not a comment is of that
// format.
func isDelegated(head []byte) bool {
	for l := range bytes.Lines(head) {
		l = bytes.TrimSpace(l)
		if len(l) == 0 || l[0] == '#' {
			continue
		}
		return bytes.Count(l, []byte("|")) >= 5
	}
	return false
}

var registries = []string{"afrinic", "apnic", "arin", "lacnic", "ripencc", "iana", "nro"}

type delegated struct {
	table   *Table
	origin  *Origin
	promise map[string]int // records by type, as the summaries say
	seen    map[string]int
}

func readDelegated(r io.Reader, name string, t *Table, o *Origin) error {
	d := delegated{t, o, make(map[string]int), make(map[string]int)}
	last := 0
	err := lines(r, name, func(line int, text string) error {
		last = line
		return d.line(strings.Split(text, "|"))
	})
	if err != nil {
		return err
	}
	for _, kind := range [...]string{"ipv4", "ipv6"} {
		if want, ok := d.promise[kind]; ok && want != d.seen[kind] {
			return fmt.Errorf("%s:%d: the file is truncated or damaged: its summary counts %d %s records, but it has %d",
				name, last, want, kind, d.seen[kind])
		}
	}
	return nil
}

func (d *delegated) line(f []string) error {
	switch {
	case len(f) >= 6 && f[5] == "summary":
		n, err := strconv.Atoi(f[4])
		if err != nil {
			return fmt.Errorf("the summary counts %q records", cut(f[4]))
		}
		d.promise[f[2]] = n
		return nil
	case len(f) >= 6 && strings.Trim(f[0], "0123456789.") == "":
		return d.version(f)
	case len(f) < 7 || !slices.Contains(registries, f[0]):
		return fmt.Errorf("expected registry|country|type|start|value|date|status, found %q", cut(strings.Join(f, "|")))
	}
	kind := f[2]
	d.seen[kind]++
	switch kind {
	case "asn":
		return nil
	case "ipv4", "ipv6":
	default:
		return fmt.Errorf("%q is not ipv4, ipv6 or asn", cut(kind))
	}
	r, err := delegatedRange(kind, f[3], f[4])
	if err != nil {
		return err
	}
	code := strings.ToUpper(f[1])
	if noCountry(code) || f[6] != "allocated" && f[6] != "assigned" {
		return nil
	}
	return d.table.Add(r.From, r.To, code)
}

func (d *delegated) version(f []string) error {
	if !slices.Contains(registries, f[1]) {
		return fmt.Errorf("%q is not a registry (%s)", cut(f[1]), strings.Join(registries, ", "))
	}
	d.origin.Source = "delegated addresses of " + f[1]
	if day, err := time.Parse("20060102", f[5]); err == nil {
		d.origin.Date = day
	}
	return nil
}

func delegatedRange(kind, start, value string) (addrset.Range, error) {
	from, err := netip.ParseAddr(start)
	if err != nil || from.Zone() != "" || from.Is4() != (kind == "ipv4") || from.Is4In6() {
		return addrset.Range{}, fmt.Errorf("%q is not an address of %s", cut(start), kind)
	}
	n, err := strconv.ParseUint(value, 10, 33)
	if err != nil || n == 0 {
		return addrset.Range{}, fmt.Errorf("%q is not a number of addresses or a prefix length", cut(value))
	}
	if kind == "ipv6" {
		p, err := from.Prefix(int(n))
		if err != nil || p.Addr() != from {
			return addrset.Range{}, fmt.Errorf("%s/%d is not an IPv6 prefix", start, n)
		}
		return addrset.PrefixRange(p), nil
	}
	last := addrset.NumberOf(from).Add(num{Lo: n - 1})
	if addrset.LastNumber(true).Less(last) {
		return addrset.Range{}, fmt.Errorf("%d addresses from %s go beyond the last address", n, start)
	}
	return addrset.Range{From: from, To: last.Addr(true)}, nil
}
