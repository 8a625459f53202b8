package drafts

import (
	"fmt"
	"strings"
)

func (r *drafter) services() {
	r.uses = nil
	for _, s := range []string{
		"web: [tcp/80, tcp/443, udp/443]", "games: [udp/27000-27100, tcp/27015]", "routing: [ospf, proto/47, bgp]", "http: [tcp/8080, http]", "probes: [icmp echo-request, icmp timestamp-request]",
	} {
		if r.chance(2) {
			r.draft.Services = append(r.draft.Services, s)
			name, _, _ := strings.Cut(s, ":")
			if name != "http" {
				r.uses = append(r.uses, name)
			}
		}
	}
}

// service is the service of a rule.
func (r *drafter) service() string {
	simple := func() string {
		switch r.IntN(8) {
		case 0:
			return r.one("ssh", "smtp", "http", "dns", "ntp", "imaps", "wireguard", "ipsec", "vrrp", "kerberos", "radius", "ping")
		case 1:
			return "icmp " + r.one("echo-request", "echo-reply", "timestamp-request", "destination-unreachable", "packet-too-big", "redirect", "router-advertisement", "info-request", "mld-listener-query", "neighbour-solicitation")
		case 2:
			return r.one("tcp", "udp", "icmp", "sctp", "proto/112", "proto/47", "proto/33", "proto/51", "proto/136", "proto/50", "proto/132", "proto/58")
		case 3:
			from := r.IntN(60000)
			return fmt.Sprintf("%s/%d-%d", r.one("tcp", "udp"), max(from, 1), from+1+r.IntN(4000))
		case 4:
			if len(r.uses) > 0 {
				return r.one(r.uses...)
			}
		}
		return r.one("tcp/22", "tcp/25", "tcp/80", "tcp/443", "tcp/1024", "tcp/8080", "udp/53", "udp/123", "udp/2000", "udp/1024", "sctp/3868", "tcp/65535", "udp/1")
	}
	switch r.IntN(8) {
	case 0:
		return r.one("any", "")
	case 1, 2:
		return "[" + simple() + ", " + simple() + "]"
	}
	return simple()
}

// who is whose address is meant; zones where they make sense.
func (r *drafter) who(zones bool) string {
	not := ""
	if r.chance(4) {
		not = "not "
	}
	name := func() string { return r.one(r.names...) }
	if zones && r.chance(2) {
		name = func() string { return r.one("lan", "wan", "dmz", "sides", "bureau") }
	}
	switch r.IntN(5) {
	case 0:
		return not + "[" + r.address() + ", " + name() + "]"
	case 1:
		return not + r.address()
	}
	return not + name()
}

// rule is a line of a section.
func (r *drafter) rule(section string) string {
	if section == "forward" && r.chance(20) {
		return "clamp mss" + r.one("", " from lan", " out wan", " from lan to wan", " ipv4")
	}
	action := r.one("allow", "allow", "allow", "drop", "reject")
	words := []string{action}
	if section != "output" && r.chance(12) {
		words = append(words, "published", r.one("tcp/8080", "udp/9000", "tcp/8000-9000", "tcp", "[tcp/8080, udp/9000]", "tcp/22", "[tcp/25, tcp/9001]"))
	} else if s := r.service(); s != "" {
		words = append(words, s)
	}
	if r.chance(6) {
		words = append(words, r.one("ipv4", "ipv6"))
	}
	var clauses []string
	if r.chance(2) {
		clauses = append(clauses, "from "+r.who(section != "output"))
	}
	switch {
	case section == "input" && r.chance(6):
		clauses = append(clauses, "to "+r.one("198.51.100.1", "198.51.100.9", "10.20.0.1", "2001:db8:100::1", "not 198.51.100.9", "198.51.100.0/28", "[10.20.0.1, 2001:db8:20::1]"))
	case section != "input" && r.chance(3):
		clauses = append(clauses, "to "+r.who(true))
	}
	if section != "output" && r.chance(5) {
		clauses = append(clauses, "in "+r.one("wan", "lan", "sides"))
	}
	if section != "input" && r.chance(5) {
		clauses = append(clauses, "out "+r.one("wan", "lan", "sides"))
	}
	if section == "output" && r.chance(5) {
		clauses = append(clauses, "by user "+r.one("0", "25", "1000", "[25, 1000]", "root"))
	}
	if r.chance(12) {
		clauses = append(clauses, "until "+r.one("2001-01-31T18:00:00Z", "2100-01-31T18:00:00Z"))
	}
	// Rates that are used up in a run and give nothing back, and such that no run uses up.
	if r.chance(12) {
		clauses = append(clauses, fmt.Sprintf("limit %d/day burst %d", 1+r.IntN(3), 1+r.IntN(8)))
	} else if r.chance(12) {
		clauses = append(clauses, "limit "+r.one("1000000/second", "900000/second burst 1000000"))
	} else if section != "output" && r.chance(20) {
		clauses = append(clauses, "limit 1000000/second per source"+r.one("", " then ban 1h", " then ban 1h widen"))
	}
	if action == "allow" && r.chance(20) {
		clauses = append(clauses, "max 1000000 connections")
		if section != "output" && r.chance(2) {
			clauses[len(clauses)-1] += " per source"
		}
	}
	if r.chance(15) {
		clauses = append(clauses, `log "z"`)
	}
	r.Shuffle(len(clauses), func(i, j int) { clauses[i], clauses[j] = clauses[j], clauses[i] })
	return quoteLine(strings.Join(append(words, clauses...), " "))
}

// quoteLine keeps YAML from reading more into a line than words.
func quoteLine(line string) string {
	if strings.ContainsAny(line, `":#`) {
		return "'" + line + "'"
	}
	return line
}

// alike are rules that differ in the same one or two words, for the optimizer to
// make sets and maps of, and at times one that does not.
func (r *drafter) alike(section string, most int) (out []string) {
	service := r.one("tcp/22", "tcp/443", "udp/53", "tcp/1024-1600", "sctp", "ping")
	from, to := r.chance(2), section != "input" && r.chance(2)
	several := r.chance(2) || !from && !to
	verdicts := []string{"allow", "drop", "reject"}[:1+r.IntN(3)]
	for range min(most, 5+r.IntN(20)) {
		words := []string{r.one(verdicts...), service}
		if several {
			words[1] = fmt.Sprintf("%s/%d", r.one("tcp", "tcp", "udp"), 1+r.IntN(30))
		}
		if from {
			words = append(words, "from", r.address())
		}
		if to {
			words = append(words, "to", r.address())
		}
		out = append(out, quoteLine(strings.Join(words, " ")))
		if r.chance(12) {
			out = append(out, r.rule(section))
		}
	}
	return out
}

func (r *drafter) tracking() {
	d := r.draft
	if r.chance(8) {
		d.Invalid = []string{"invalid: " + r.one("allow", "allow", "drop")}
	}
	if r.chance(6) {
		d.Invalid = append(d.Invalid, "icmp-errors: "+r.one("all", "all", "related"))
	}
	if r.chance(3) {
		if r.chance(3) {
			d.Sets = append(d.Sets, `listeners: { endpoints: ["198.51.100.1 tcp/80", "[2001:db8:100::1] tcp/443", "198.51.100.9 udp/53"] }`)
			d.Bypass = append(d.Bypass, r.one("[http, https, dns] to listeners", "[tcp/80, tcp/443, udp/53] to listeners"))
		}
		for range r.IntN(3) {
			d.Bypass = append(d.Bypass, r.one("http", "udp/53", "tcp/443", "[smtp, ssh]", "tcp/25 to 198.51.100.1", "tcp/22 to 198.51.100.9", "udp/123 to 10.20.0.1", "tcp/8080", "udp/2000", "tcp/22 to 2001:db8:100::9"))
		}
		for i := range d.Bypass {
			d.Bypass[i] = `"` + d.Bypass[i] + `"`
		}
	}
}

// nat are lines of every kind. What leads to the same inner machines meets, and some
// lead a packet to where it goes already.
func (r *drafter) nat() {
	d := r.draft
	for range 1 + r.IntN(4) {
		d.NAT = append(d.NAT, r.one(
			"masquerade from lan out wan ipv4",
			"masquerade out wan",
			"masquerade from [10.99.0.0/24, 2001:db8:aaaa::/64] out wan",
			"masquerade from a out wan",
			"masquerade from not c out wan ipv6",
			"masquerade from lan out wan as 198.51.100.9",
			"masquerade from dmz out wan as 2001:db8:100::9",
			"masquerade from lan out dmz",
			"redirect tcp/8080 in wan to 10.20.0.5:80",
			"redirect tcp/8080 in wan to [2001:db8:20::5]:80",
			"redirect udp/9000 in wan to [2001:db8:20::5]:53",
			"redirect udp/9000 in wan to 10.30.0.5",
			"redirect tcp/2222 in wan to :22",
			"redirect tcp/8443-8450 in wan to 10.30.0.6",
			"redirect [tcp/443, udp/443] on 198.51.100.9 to 10.20.0.6",
			"redirect tcp/25 on 192.0.2.25 to 10.20.0.5:25",
			"redirect tcp/9001 on 2001:db8:100::9 to [2001:db8:20::6]:9000",
			"redirect tcp/80 in lan to 10.30.0.5:8080",
			"redirect dns in sides to :5353",
			"redirect tcp/22 in wan to :22",
			"redirect tcp/22 in lan to 10.20.0.1",
			"redirect tcp/8080-8090 on 198.51.100.9 to 198.51.100.9:8080",
			"redirect tcp/8443-8450 on 2001:db8:100::9 to [2001:db8:100::9]:8443",
			"redirect [tcp/25, udp/9000] on 10.20.0.5 to 10.20.0.5",
			"redirect tcp/9001 on 2001:db8:20::6 to [2001:db8:20::6]:9001",
			"map 198.51.100.32/28 to 10.20.0.0/28",
			"map 2001:db8:100:f::/64 to 2001:db8:20::/64",
			"map 198.51.100.32/28 to 10.20.0.0/28 stateless",
			"map 2001:db8:100:f::/64 to 2001:db8:20::/64 stateless",
			"map 192.0.2.64/27 to 10.30.0.32/27",
			"map 192.0.2.96/30 to 10.20.0.20/30 stateless",
		))
	}
	for i := range d.NAT {
		d.NAT[i] = quoteLine(d.NAT[i])
	}
}
