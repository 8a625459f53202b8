package classes

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
	"sluice/internal/language/policy"
)

const oneHost = `
-- fleet.yaml --
version: 1
fleet: example.net
parts: [p.yaml]
sets:
  web: { hosts: role=web, within: 203.0.113.0/29 }
  ops: { hosts: role=ops, within: 203.0.113.0/28 }
  api: { guests: app=api, within: 10.30.0.0/29 }
-- inventory.yaml --
version: 1
hosts:
  a: { addresses: 203.0.113.99 }
-- p.yaml --
version: 1
`

// failing are the expectations that the hostile proof of a part of one host refutes.
func failing(t *testing.T, part string) []string {
	t.Helper()
	return refuted(t, oneHost, part)
}

func refuted(t *testing.T, fleet, part string) []string {
	t.Helper()
	f := read(t, strings.Replace(fleet, "-- p.yaml --\nversion: 1\n", "-- p.yaml --\nversion: 1\n"+part+"\n", 1))
	list, found, err := f.Classes(t.Context())
	if err != nil || len(found) > 0 || len(list) != 1 {
		t.Fatal(found, err)
	}
	proofs, err := list[0].Hostile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, p := range proofs {
		for i := range p.Results {
			if text := p.Results[i].Expectation.Text; !p.Results[i].Holds() && !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	slices.Sort(out)
	return out
}

// TestHostile has a set of the controller's at each place of a policy: the first expectation is
// refuted by what may be made of it, the second one holds.
func TestHostile(t *testing.T) {
	t.Parallel()
	for what, part := range map[string]string{
		"a rule allows from it": `
input: { default: drop, rules: [allow ssh from web] }
expect: [deny ssh from 203.0.113.1, deny ssh from not 203.0.113.0/29]`,
		"a rule allows from a live list": `
sets: { mon: { url: "https://lists.example.net/mon.txt", live: true, within: 203.0.113.64/29 } }
input: { default: drop, rules: [allow ssh from mon] }
expect: [deny ssh from 203.0.113.65, deny ssh from not 203.0.113.64/29]`,
		"a rule drops from a live list": `
sets: { scan: { url: "https://lists.example.net/scan.txt", live: true } }
input: { default: drop, rules: [drop from scan, allow https] }
expect: [deny https from scan, deny ssh from scan]`,
		"a ban has a live list": `
sets: { scan: { url: "https://lists.example.net/scan.txt", live: true } }
ban: scan
input: { default: drop, rules: [allow https] }
expect: [deny https from scan, deny ssh from scan]`,
		"a rule allows to it": `
forward: { default: drop, rules: [allow ssh to api] }
expect: [deny ssh to 10.30.0.1 on forward, deny ssh to not 10.30.0.0/29 on forward]`,
		"a rule of output allows to it": `
output: { default: drop, rules: [allow ssh to web] }
expect: [deny ssh to 203.0.113.1 on output, deny ssh to not 203.0.113.0/29 on output]`,
		"a rule drops from it": `
input: { default: drop, rules: [drop ssh from web, allow ssh] }
expect: [deny ssh from web, allow ssh from not 203.0.113.0/29]`,
		"a rule rejects to it": `
forward: { default: drop, rules: [reject ssh to api, allow ssh] }
expect: [deny ssh to api on forward, allow ssh to not 10.30.0.0/29 on forward]`,
		"a rule allows from not": `
input: { default: drop, rules: [allow ssh from not web] }
expect: [deny ssh from 203.0.113.1, allow ssh from not 203.0.113.0/29]`,
		"a rule drops from not": `
input: { default: allow, rules: [drop ssh from not web] }
expect: [deny ssh from 203.0.113.1, deny ssh from not 203.0.113.0/29]`,
		"a set is made of it": `
sets: { us: { union: [web] }, all: { union: [us, api] } }
input: { default: drop, rules: [allow ssh from all] }
expect: [deny ssh from 203.0.113.1, "deny ssh from not [203.0.113.0/29, 10.30.0.0/29]"]`,
		"a set is without it": `
sets: { some: [203.0.113.0/28], others: { union: [some], except: [web] } }
input: { default: drop, rules: [allow ssh from others] }
expect: [deny ssh from 203.0.113.1, deny ssh from not 203.0.113.0/28]`,
		"a set is without a set without it": `
sets: { some: [203.0.113.0/28], others: { union: [some], except: [web] }, left: { union: [some], except: [others] } }
input: { default: drop, rules: [allow ssh from left] }
expect: [deny ssh from 203.0.113.1, deny ssh from not 203.0.113.0/29]`,
		"it is banned": `
ban: [web]
input: { default: drop, rules: [allow ssh] }
expect: [deny ssh from 203.0.113.1, allow ssh from not 203.0.113.0/29]`,
		"a set made of it is banned": `
sets: { bad: { union: [web] } }
ban: [bad]
input: { default: drop, rules: [allow ssh] }
expect: [deny ssh from 203.0.113.1, allow ssh from not 203.0.113.0/29]`,
		"it is never banned": `
sets: { bad: [203.0.113.0/24] }
ban: [bad]
never-ban: [web]
input: { default: drop, rules: [allow ssh] }
expect: [deny ssh from 203.0.113.1, deny ssh from 203.0.113.8/29]`,
		"an expectation has it behind not": `
input: { default: drop, rules: [allow ssh from 203.0.113.1] }
expect: [deny ssh from not web, deny ssh from not 203.0.113.1]`,
		"an expectation has two of them behind not": `
input: { default: drop, rules: [allow ssh from 203.0.113.1, allow http from web, allow http from ops] }
expect: ["deny ssh from not [web, ops]", "deny http from not [web, ops]"]`,
		"an expectation has a set without it": `
sets: { some: [203.0.113.0/28], others: { union: [some], except: [web] } }
input: { default: drop, rules: [allow ssh from 203.0.113.1, allow http from web] }
expect: [deny ssh from others, deny http from others]`,
		"an expectation has a set without it behind not": `
sets: { some: [0.0.0.0/0], others: { union: [some], except: [web] } }
input: { default: drop, rules: [allow ssh ipv4, allow http from others] }
expect: [deny ssh ipv4 from not others, allow http ipv4 from not 203.0.113.0/29]`,
		"an expectation has it on both sides": `
forward: { default: drop, rules: [allow ssh from 203.0.113.1 to web, allow http from web to web] }
expect: [deny ssh from not web to web on forward, deny http from not web to web on forward]`,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, lines, _ := strings.Cut(part, "expect: [")
			lines = strings.NewReplacer(`"`, "", "]]", "]").Replace(lines)
			first, _, _ := strings.Cut(lines, ", deny")
			first, _, _ = strings.Cut(first, ", allow")
			if got := failing(t, part); !slices.Equal(got, []string{first}) {
				t.Errorf("refuted are %q, want %q", got, first)
			}
		})
	}
	// Whom the controller may let in is let in to everything, except for bans of the policy.
	for bounds, want := range map[string]string{
		"none":                            "",
		"{longest: 8h}":                   "deny ssh from not 203.0.113.0/29",
		"{who: 192.0.2.1, longest: 8h}":   "deny ssh from not 203.0.113.0/29",
		"{who: web, longest: 8h}":         "",
		"{who: 203.0.113.7}":              "",
		"{who: [web, 198.51.100.0/24]}":   "",
		"{who: [web, 198.51.100.0/23]}":   "deny ssh from not 203.0.113.0/29",
		"{who: [web, \"2001:db8::/32\"]}": "deny ssh from not 203.0.113.0/29",
	} {
		part := "ban: [198.51.100.0/24]\ninput: { default: drop, rules: [allow ssh from 203.0.113.1] }\nexpect: [deny ssh from not 203.0.113.0/29, allow ssh from 203.0.113.1]"
		if got := strings.Join(refuted(t, strings.Replace(oneHost, "sets:\n", "bans: {}\nexceptions: "+bounds+"\nsets:\n", 1), part), ""); got != want {
			t.Errorf("exceptions: %s: refuted is %q, want %q", bounds, got, want)
		}
	}
	// Nobody proves what sixty-four worlds do not show.
	many := "sets: {}\ninput: { default: drop }\n"
	f := read(t, strings.Replace(strings.Replace(oneHost, "sets:\n", "sets:\n  b: {hosts: x=1, within: 192.0.2.1}\n  c: {hosts: x=2, within: 192.0.2.1}\n  d: {hosts: x=3, within: 192.0.2.1}\n  e: {hosts: x=4, within: 192.0.2.1}\n", 1),
		"-- p.yaml --\nversion: 1\n", "-- p.yaml --\nversion: 1\n"+many+`expect: ["deny ssh from not [web, ops, api, b, c, d, e]"]`+"\n", 1))
	list, _, err := f.Classes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := list[0].Hostile(t.Context()); err == nil || !strings.Contains(err.Error(), "7 sets of the controller behind not and except") {
		t.Error(err)
	}
}

// TestHostileIsWhole: whatever members a controller gives sets, an expectation that they make
// fail is refuted.
func TestHostileIsWhole(t *testing.T) {
	t.Parallel()
	r := testseed.Rand(t)
	one := func(list ...string) string { return list[r.IntN(len(list))] }
	who := func() string {
		return one("web", "ops", "us", "others", "left", "not web", "not others", "not [web, ops]", "[us, 203.0.113.9]", "203.0.113.1", "not 203.0.113.2", "203.0.113.0/28")
	}
	refuted, held := 0, 0
	for range testseed.Rounds(12, 200) {
		part := fmt.Sprintf("sets: { some: [203.0.113.0/28], us: { union: [web], except: [%s] }, others: { union: [some, api], except: [%s] }, left: { union: [some], except: [others] } }\n", one("ops", "api"), one("web", "us"))
		if r.IntN(3) == 0 {
			part += "ban: [" + one("web", "others", "203.0.113.2") + "]\nnever-ban: [" + one("ops", "us", "192.0.2.1") + "]\n"
		}
		part += "forward:\n  default: " + one("drop", "drop", "allow") + "\n  rules:\n"
		for range 1 + r.IntN(4) {
			part += "    - " + one("allow", "drop", "reject") + " ssh from " + who() + " to " + who() + "\n"
		}
		part += "expect:\n"
		for range 4 {
			part += "  - deny ssh from " + who() + " to " + who() + " on forward\n"
		}
		f := read(t, strings.Replace(oneHost, "-- p.yaml --\nversion: 1\n", "-- p.yaml --\nversion: 1\n"+part, 1))
		list, found, err := f.Classes(t.Context())
		if err != nil || len(found) > 0 {
			t.Fatal(found, err, part)
		}
		c := list[0]
		proofs, err := c.Hostile(t.Context())
		if err != nil {
			t.Fatal(err, part)
		}
		fails := map[policy.Pos]bool{}
		for _, p := range proofs {
			for i := range p.Results {
				fails[p.Results[i].Expectation.Pos] = fails[p.Results[i].Expectation.Pos] || !p.Results[i].Holds()
			}
		}
		for range 6 {
			p, members := *c.Policy, ""
			p.Sets = slices.Clone(p.Sets)
			for i, s := range p.Sets {
				if !s.IsGroup() || s.Own {
					continue
				}
				with := *s
				with.Elements = nil
				for _, text := range []string{"203.0.113.1", "203.0.113.2", "203.0.113.9", "10.30.0.1"} {
					a := netip.MustParseAddr(text)
					is := policy.Range{Range: addrset.PrefixRange(netip.PrefixFrom(a, a.BitLen()))}
					if r.IntN(2) == 0 && slices.ContainsFunc(s.Within, func(w policy.Range) bool { return w.Range.Contains(a) }) {
						with.Elements = append(with.Elements, is)
						members += " " + s.Name + ":" + text
					}
				}
				p.Sets[i] = &with
			}
			results, err := c.testAs(t.Context(), &p)
			if err != nil {
				t.Fatal(err, part)
			}
			for i := range results {
				x := results[i].Expectation
				if results[i].Holds() {
					held++
					continue
				}
				if refuted++; !fails[x.Pos] {
					t.Errorf("%s fails with%s, and is not refuted\n%s", x.Text, members, part)
				}
			}
		}
		if t.Failed() {
			return
		}
	}
	if refuted == 0 || held == 0 {
		t.Errorf("the test shows nothing: %d fail, %d hold", refuted, held)
	}
}
