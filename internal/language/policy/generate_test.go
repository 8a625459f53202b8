package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/internal/base/testseed"
)

// sameTree compares trees by what they say, not where.
var sameTree = cmp.Options{
	cmpopts.IgnoreTypes(Pos{}),
	cmpopts.IgnoreUnexported(Policy{}),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

// randomRule makes a rule in both forms: as a line with its clauses in any
// order, and as a mapping.
func randomRule(r *rand.Rand, hook Hook) (line, mapping string) {
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	var keys, parts []string
	// as is the value in the mapping, words in the line.
	add := func(key, as, words string) {
		keys = append(keys, key+": "+as)
		parts = append(parts, words)
	}
	service := pick("any", "web", "ssh", "tcp/80", "udp/1000-2000", "icmp echo-request", "proto/112", "[smtp, imaps]", "[icmp echo-request, tcp]")
	var head string
	clamp := hook == Forward && r.IntN(6) == 0
	action := pick("allow", "drop", "reject")
	if clamp {
		keys = append(keys, "clamp: mss")
		head = "clamp mss"
	} else {
		keys = append(keys, action+": "+service)
		head = action
		if hook != Output && r.IntN(4) == 0 {
			head += " published"
			keys = append(keys, "published: true")
		}
		if service != "any" || r.IntN(2) == 0 {
			head += " " + service
		}
	}
	who := func() string {
		return pick("office", "served", "not office", "[office, served]", "203.0.113.7", "not [203.0.113.0/24, office]", "198.51.100.1-198.51.100.9", "any")
	}
	quoted := func(s string) string {
		if s[0] == '[' {
			return s
		}
		return `"` + s + `"`
	}
	if r.IntN(3) == 0 {
		add("family", "ipv4", "ipv4")
	}
	if r.IntN(2) == 0 {
		w := who()
		add("from", quoted(w), "from "+w)
	}
	if r.IntN(3) == 0 {
		w := who()
		add("to", quoted(w), "to "+w)
	}
	if hook != Output && r.IntN(4) == 0 {
		add("in", "wan", "in wan")
	}
	if hook != Input && r.IntN(4) == 0 {
		add("out", "vms", "out vms")
	}
	if clamp {
		r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		return head + " " + strings.Join(parts, " "), "{" + strings.Join(keys, ", ") + "}"
	}
	if hook == Output && r.IntN(2) == 0 {
		u := pick("postfix", "[postfix, 1000]", "0")
		add("user", u, "by user "+u)
	}
	if r.IntN(3) == 0 {
		rate := pick("10/minute", "6/30s", "1/day", "20/second", "3/h")
		words, m := rate, "rate: "+rate
		if hook != Output && r.IntN(2) == 0 {
			words, m = words+" per source", m+", per: source"
			if r.IntN(2) == 0 {
				words, m = words+" then ban 90m", m+", ban: 90m"
				if r.IntN(2) == 0 {
					words, m = words+" widen", m+", widen: true"
				}
			}
		}
		if r.IntN(2) == 0 {
			words, m = words+" burst 7", m+", burst: 7"
		}
		m = "{" + m + "}"
		if r.IntN(2) == 0 {
			m = words
		}
		add("limit", m, "limit "+words)
	}
	if action == "allow" && r.IntN(3) == 0 {
		per, perKey := "", ""
		if hook != Output && r.IntN(2) == 0 {
			per, perKey = " per source", ", per: source"
		}
		add("max", pick("{connections: 20"+perKey+"}", "20 connections"+per, "20"+per), "max 20 connections"+per)
		if per != "" && strings.HasSuffix(keys[len(keys)-1], "20"+per) {
			keys[len(keys)-1] = "max: 20 connections" + per
		}
	}
	if r.IntN(4) == 0 {
		at := pick("2027-01-31T18:00:00Z", "2027-01-31T19:00+01:00")
		add("until", quoted(at), "until "+at)
	}
	if r.IntN(3) == 0 {
		text := pick("a", "a: b", "in #1", "")
		add("log", `"`+text+`"`, `log "`+text+`"`)
	}
	r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return head + " " + strings.Join(parts, " "), "{" + strings.Join(keys, ", ") + "}"
}

// A line, its mapping and its canonical text are one rule.
func TestFormsAgree(t *testing.T) {
	r := testseed.Rand(t)
	for range testseed.Rounds(1500, 3000) {
		hook := []Hook{Input, Output, Forward}[r.IntN(3)]
		line, mapping := randomRule(r, hook)
		fromLine, err := parseRule(t, hook, quoteScalar(line, true))
		if err != nil {
			t.Fatalf("%s: %s\n%v", hook, line, err)
		}
		fromMapping, err := parseRule(t, hook, mapping)
		if err != nil {
			t.Fatalf("%s: %s\n%v", hook, mapping, err)
		}
		if diff := cmp.Diff(fromLine, fromMapping, sameTree); diff != "" {
			t.Fatalf("%s\n%s\n%s", line, mapping, diff)
		}
		again, err := parseRule(t, hook, quoteScalar(fromLine.Text, true))
		if err != nil {
			t.Fatalf("%s: %s\n%v", hook, fromLine.Text, err)
		}
		if diff := cmp.Diff(fromLine, again, sameTree); diff != "" {
			t.Fatalf("%s\n%s\n%s", line, fromLine.Text, diff)
		}
	}
}

// The parts of a policy that are no rules have two forms as well.
func TestOtherFormsAgree(t *testing.T) {
	const zone = "zones: {wan: {interfaces: [eth0]}}\nsets: {office: [203.0.113.0/24], l: {endpoints: [198.51.100.1 tcp/80]}}\n"
	for _, c := range [][]string{
		{"nat:\n  - masquerade from office out wan ipv4", "nat:\n  - {masquerade: ipv4, from: office, out: wan}", "nat: masquerade ipv4 out wan from office"},
		{"nat:\n  - masquerade out wan", "nat:\n  - {masquerade: any, out: wan}"},
		{"nat:\n  - masquerade out wan as 198.51.100.7", "nat:\n  - {masquerade: any, out: wan, as: 198.51.100.7}", "nat:\n  - masquerade out wan ipv4 as 198.51.100.7"},
		{"nat:\n  - redirect tcp/8080 in wan to 10.20.0.5:80", "nat:\n  - {redirect: tcp/8080, in: wan, to: \"10.20.0.5:80\"}", "nat:\n  - redirect tcp/8080 ipv4 to 10.20.0.5:80 in wan"},
		{"nat:\n  - redirect [tcp/80, tcp/443] on [198.51.100.9, 198.51.100.8] to :8080", "nat:\n  - {redirect: [tcp/80, tcp/443], on: [198.51.100.9, 198.51.100.8], to: \":8080\"}"},
		{"nat:\n  - 'redirect http in wan on 2001:db8::9 to [2001:db8::5]:80'", "nat:\n  - {redirect: http, in: wan, on: \"2001:db8::9\", to: \"[2001:db8::5]:80\"}"},
		{"nat:\n  - map 198.51.100.16/28 to 10.20.1.0/28 stateless", "nat:\n  - {map: 198.51.100.16/28, to: 10.20.1.0/28, stateless: true}"},
		{"tracking: {bypass: [http to l, dns]}", "tracking: {bypass: [{service: http, to: l}, {service: dns}]}"},
		{"tracking: {grace: 180s}", "tracking: {grace: 3m}"},
		{"tracking: {grace: none}", "tracking: {grace: none}"},
		{"tracking: {bypass: http to l}", "tracking: {bypass: {service: [http], to: [l]}}"},
		{"tracking: {bypass: '[http, dns] to 198.51.100.1'}", "tracking: {bypass: {service: [http, dns], to: 198.51.100.1}}"},
		{"tracking: {table: {max: 5, timeouts: {udp: 90s}}}", "tracking: {table: {max: \"5\", timeouts: {udp: 1m30s}}}"},
		{"input: {default: drop log \"in\"}", "input: {default: {action: drop, log: in}}"},
		{"sets: {a: 192.0.2.1, b: {countries: no}}", "sets: {a: [192.0.2.1/32], b: {countries: [NO]}}", "sets: {a: {addresses: 192.0.2.1-192.0.2.1}, b: {countries: [\"NO\"]}}"},
		{"services: {a: tcp/80, b: a}", "services: {a: [http], b: [tcp/80]}"},
		{"services: {ssh: [ssh, tcp/2222]}", "services: {ssh: [tcp/2222, tcp/22]}"},
		{"ban: [office]", "ban: office"},
		{"layout: {memory: 64MiB, load: 1s}", "layout: {memory: 65536KiB, load: 1000ms}"},
	} {
		var first *Policy
		for i, text := range c {
			if !strings.HasPrefix(text, "sets") {
				text = zone + text
			}
			p, err := Parse("p.yaml", []byte(head+text+"\n"))
			if err != nil {
				t.Fatalf("%s\n%v", text, err)
			}
			if i == 0 {
				first = p
				continue
			}
			if diff := cmp.Diff(first, p, sameTree); diff != "" {
				t.Errorf("%s\n%s\n%s", c[0], c[i], diff)
			}
		}
	}
}

// What the builtin table says is what a rule gets.
func TestBuiltin(t *testing.T) {
	for _, s := range Builtin() {
		r, err := parseRule(t, Input, "allow "+s.Name)
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		if len(s.Matches) == 0 {
			t.Errorf("%s has no matches", s.Name)
		}
		if diff := cmp.Diff(s.Matches, r.Services[0].Matches); diff != "" {
			t.Errorf("%s: %s", s.Name, diff)
		}
		if p := checkName(s.Name); p != nil {
			t.Errorf("%s: %s", s.Name, p.message)
		}
	}
	if got := fmt.Sprint(builtinNamed("ipsec").Matches); got != "[udp/500, udp/4500 proto/50]" {
		t.Errorf("ipsec is %s", got)
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "10m": 10 * time.Minute, "1h30m": 90 * time.Minute, "1d": 24 * time.Hour,
		"1w1s": 7*24*time.Hour + time.Second, "90s": 90 * time.Second,
	} {
		got, p := parseDuration(text)
		if p != nil || got != want {
			t.Errorf("%s: %v %v", text, got, p)
		}
		if back, p := parseDuration(formatDuration(want)); p != nil || back != want {
			t.Errorf("%s: %s is %v %v", text, formatDuration(want), back, p)
		}
	}
	for _, text := range []string{"", "0s", "1", "m", "1m1h", "1h1h", "1.5h", "-1s", "1 h", "1ms", "99999999999999999999s", "9999999w", "4000d", "1minute", "1é"} {
		if d, p := parseDuration(text); p == nil {
			t.Errorf("%q is %v", text, d)
		}
	}
}
