package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/language/source"
)

// problem is what is wrong with a value, before it has a place.
type problem struct{ message, hint string }

func problemf(hint, format string, args ...any) *problem {
	return &problem{fmt.Sprintf(format, args...), hint}
}

var nameSyntax = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(namePattern) })

// reserved are the words of the rule language, which no zone, set or service
// may have as a name.
var reserved = []string{
	"allow", "drop", "reject", "clamp", "mss", "any", "not", "from", "to", "in", "out", "by", "user",
	"limit", "per", "source", "burst", "then", "ban", "widen", "max", "connection", "connections", "until", "log",
	"ipv4", "ipv6", "published", "tcp", "udp", "sctp", "proto", "icmp",
	"masquerade", "redirect", "map", "as", "on", "stateless",
}

// checkName says what is wrong with the name of a zone, set or service.
func checkName(s string) *problem {
	switch {
	case !nameSyntax().MatchString(s):
		return problemf("write a letter, then letters, digits, - and _, at most 48 characters", "%s is not a name", source.Quote(s))
	case slices.Contains(reserved, s):
		return problemf("", "%s is a word of the rule language and cannot be a name", source.Quote(s))
	}
	return nil
}

// units of durations, the largest first.
var units = []struct {
	letter byte
	length time.Duration
	words  []string
}{
	{'w', 7 * 24 * time.Hour, []string{"week", "weeks"}},
	{'d', 24 * time.Hour, []string{"day", "days"}},
	{'h', time.Hour, []string{"hour", "hours", "hr", "hrs"}},
	{'m', time.Minute, []string{"minute", "minutes", "min", "mins"}},
	{'s', time.Second, []string{"second", "seconds", "sec", "secs"}},
}

// maxDuration is far beyond every use and far from every overflow.
const maxDuration = 3650 * 24 * time.Hour

// ParseDuration reads a duration as policies write it, such as 90s, 10m, 1h30m
// or 1d; hint says how to write one where the text is none.
func ParseDuration(text string) (d time.Duration, hint string, ok bool) {
	d, p := parseDuration(text)
	if p != nil {
		return 0, p.hint, false
	}
	return d, "", true
}

// parseDuration reads numbers with a unit each, the larger unit first.
func parseDuration(s string) (time.Duration, *problem) {
	bad := func(hint string) (time.Duration, *problem) {
		if hint == "" {
			hint = "write 30s, 10m, 1h30m or 1d"
		}
		return 0, problemf(hint, "%s is not a duration", source.Quote(s))
	}
	if isDigits(s) {
		n := s[:min(len(s), 12)]
		return bad("add the unit, as in " + n + "s, " + n + "m or " + n + "h")
	}
	var total time.Duration
	rest, next := s, 0
	for rest != "" {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		if digits == 0 || digits == len(rest) {
			return bad("")
		}
		letter := rest[digits]
		unit := -1
		for i := next; i < len(units); i++ {
			if units[i].letter == letter {
				unit = i
			}
		}
		if unit < 0 {
			return bad("")
		}
		if tail := rest[digits:]; len(tail) > 1 && isLetter(tail[1]) {
			word := tail[:len(tail)-len(strings.TrimLeft(tail, "abcdefghijklmnopqrstuvwxyz"))]
			for _, u := range units {
				if slices.Contains(u.words, word) {
					return bad("write " + rest[:digits] + string(u.letter))
				}
			}
			return bad("")
		}
		n, err := strconv.ParseUint(rest[:digits], 10, 63)
		if err != nil || n > uint64(maxDuration/units[unit].length) {
			return 0, problemf("at most 3650d", "duration %s is too long", source.Quote(s))
		}
		total += time.Duration(n) * units[unit].length
		rest, next = rest[digits+1:], unit+1
	}
	switch {
	case s == "":
		return bad("")
	case total == 0:
		return 0, problemf("", "duration %s is zero", source.Quote(s))
	case total > maxDuration:
		return 0, problemf("at most 3650d", "duration %s is too long", source.Quote(s))
	}
	return total, nil
}

// formatDuration is the canonical form: only what parseDuration reads.
func formatDuration(d time.Duration) string {
	var b strings.Builder
	for _, u := range units[1:] { // weeks are days in the canonical form
		if d >= u.length {
			fmt.Fprintf(&b, "%d%c", int64(d/u.length), u.letter)
			d %= u.length
		}
	}
	return b.String()
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// parseNumber reads a decimal number from 1 to most.
func parseNumber(s, what string, most uint64) (uint64, *problem) {
	switch {
	case !isDigits(s):
		hint := ""
		if t := strings.ReplaceAll(strings.ReplaceAll(s, "_", ""), ",", ""); isDigits(t) && len(t) < 20 {
			hint = "write " + t
		}
		if strings.HasPrefix(s, "-") && isDigits(s[1:]) {
			return 0, problemf("", "%s must be above zero, not %s", what, source.Quote(s))
		}
		return 0, problemf(hint, "%s must be a whole number, not %s", what, source.Quote(s))
	case strings.Trim(s, "0") == "":
		return 0, problemf("", "%s must be above zero", what)
	case s[0] == '0':
		return 0, problemf("write "+strings.TrimLeft(s, "0"), "%s has leading zeros", what)
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > most {
		return 0, problemf(fmt.Sprintf("at most %d", most), "%s %s is too large", what, source.Quote(s))
	}
	return n, nil
}

// parseRange reads an address, prefix or range of addresses.
func parseRange(s string) (addrset.Range, *problem) {
	r, err := addrset.ParseRange(s)
	if err == nil {
		return r, nil
	}
	var parse *addrset.ParseError
	if errors.As(err, &parse) {
		return r, &problem{shorten(parse.Problem), parse.Hint}
	}
	return r, &problem{err.Error(), ""}
}

// shorten bounds the texts of addrset, which quote what the policy says.
func shorten(s string) string {
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return s
}

// isLiteral tells a text that is meant as addresses from a name.
func isLiteral(s string) bool {
	if s == "" {
		return false
	}
	return s[0] >= '0' && s[0] <= '9' || strings.ContainsAny(s, ":/")
}

// parsePorts reads "80" or "1000-2000".
func parsePorts(s string) (PortRange, *problem) {
	first, last, isRange := strings.Cut(s, "-")
	from, p := parsePort(first)
	if p != nil {
		return PortRange{}, p
	}
	if !isRange {
		return PortRange{from, from}, nil
	}
	to, p := parsePort(last)
	if p != nil {
		return PortRange{}, p
	}
	if from > to {
		return PortRange{}, problemf(fmt.Sprintf("write %d-%d", to, from), "range of ports %s is reversed", s)
	}
	return PortRange{from, to}, nil
}

func parsePort(s string) (uint16, *problem) {
	if !isDigits(s) {
		hint := "write a number from 1 to 65535, or two with - between"
		if strings.ContainsAny(s, ",") {
			hint = "write a list of services: [tcp/80, tcp/443]"
		} else if isBuiltin(s) {
			hint = "write the service's name alone: " + s
		} else if strings.Contains(s, ":") {
			hint = "write a range with -"
		}
		return 0, problemf(hint, "%s is not a port", source.Quote(s))
	}
	n, err := strconv.ParseUint(s, 10, 64)
	switch {
	case err != nil || n > 65535:
		return 0, problemf("ports are 1 to 65535", "port %s is above 65535", source.Quote(s))
	case n == 0:
		return 0, problemf("ports are 1 to 65535", "port 0 does not exist")
	case len(s) > 1 && s[0] == '0':
		return 0, problemf(fmt.Sprintf("write %d", n), "port %s has leading zeros", source.Quote(s))
	}
	return uint16(n), nil
}

// String returns "80" or "1000-2000".
func (p PortRange) String() string {
	if p.From == p.To {
		return strconv.Itoa(int(p.From))
	}
	return fmt.Sprintf("%d-%d", p.From, p.To)
}

// maxLogPrefix is the kernel's limit of 127 bytes (NF_LOG_PREFIXLEN less the
// final NUL) less "sluice " before and ": " behind.
const maxLogPrefix = 127 - len("sluice ") - len(": ")

// checkLogPrefix says what is wrong with the prefix of a log. What nft would
// take for the end of the text or for a variable is refused, not escaped: no
// prefix needs it.
func checkLogPrefix(s string) *problem {
	for _, r := range s {
		switch {
		case r == '"' || r == '\\' || r == '$':
			return problemf("remove it", "log prefix contains %q", string(r))
		case r < ' ' || r > '~':
			return problemf("use printable ASCII", "log prefix contains %q", string(r))
		}
	}
	if len(s) > maxLogPrefix {
		return problemf(fmt.Sprintf("at most %d characters", maxLogPrefix), "log prefix has %d characters", len(s))
	}
	return nil
}

// maxInterfaceName is IFNAMSIZ less the final NUL.
const maxInterfaceName = 15

// checkInterface says what is wrong with the name of an interface. The kernel
// (dev_valid_name) refuses blanks, '/', ':' and the two dots, and takes '%' for
// a template; quotes and backslashes it takes, but no rule needs them.
func checkInterface(s string) *problem {
	if s == "default-route" {
		return nil
	}
	for _, r := range s {
		if r <= ' ' || r > '~' || strings.ContainsRune(`/:"'\%$`, r) {
			return problemf("", "interface name %s contains %q", source.Quote(s), string(r))
		}
	}
	switch {
	case s == "*":
		return problemf("remove interfaces or the zone", "interface * matches every interface")
	case s == "." || s == "..":
		return problemf("", "%s is not an interface name", source.Quote(s))
	case strings.Contains(strings.TrimSuffix(s, "*"), "*"):
		return problemf("write * only at the end", "interface name %s has a * inside", source.Quote(s))
	case len(s) > maxInterfaceName:
		return problemf("the kernel allows 15", "interface name %s has %d characters", source.Quote(s), len(s))
	}
	return nil
}

var userSyntax = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,30}\$?$`) })

func checkUser(s string) *problem {
	if isDigits(s) {
		if n, err := strconv.ParseUint(s, 10, 32); err != nil || n == 1<<32-1 {
			return problemf("", "user number %s is too large", source.Quote(s))
		}
		if len(s) > 1 && s[0] == '0' {
			return problemf("", "user number %s has leading zeros", source.Quote(s))
		}
		return nil
	}
	if !userSyntax().MatchString(s) {
		return problemf("", "%s is not the name of a user", source.Quote(s))
	}
	return nil
}
