package query

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/packet"
	"sluice/internal/language/geo"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/system/host"
)

func rows(t *testing.T, old, next string) []Change {
	t.Helper()
	d, err := Compare(t.Context(), compiled(t, resolved(t, "old.yaml", old)), compiled(t, resolved(t, "new.yaml", next)), geo.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	return d.Changes
}

// TestExpectedFlowsAreInTheRowsOfNew: what another flow expects begins as a new flow
// does, is led on as that is, and has no row of its own.
func TestExpectedFlowsAreInTheRowsOfNew(t *testing.T) {
	const text = `version: 1
zones: { wan: { interfaces: [eth0] } }
sets: { office: [203.0.113.0/24, "2001:db8:77::/48"] }
input:
  default: drop
  rules:
    - allow ssh from office limit 10/minute per source
forward:
  default: drop
  rules:
    - allow published tcp/8080 from office
nat:
  - redirect tcp/8080 on 198.51.100.1 to 10.20.0.5:80
  - redirect tcp/8080 on 2001:db8::1 to [2001:db8:20::5]:80
`
	changes := rows(t, text, strings.Replace(text, "[203.0.113.0/24, \"2001:db8:77::/48\"]", "[203.0.113.0/25, \"2001:db8:77::/49\"]", 1))
	var hooks []string
	for _, c := range changes {
		hooks = append(hooks, c.Hook)
		if c.Kind != Closed && c.Kind != Tightened || c.Example.State != string(packet.New) || slices.ContainsFunc(c.When, func(w string) bool { return strings.Contains(w, "state") || strings.Contains(w, "published") }) {
			t.Errorf("a row of %s: %s from %+v, state %s, when %q", c.Kind, c.Services, c.From, c.Example.State, c.When)
		}
	}
	if !slices.Contains(hooks, "input") || !slices.Contains(hooks, "forward") {
		t.Errorf("rows of %v", hooks)
	}
}

// TestDiffOfAnotherDefaultRoute: what a change does once the default route moves is
// told where it is not what it does already.
func TestDiffOfAnotherDefaultRoute(t *testing.T) {
	const text = `version: 1
zones: { wan: { interfaces: [default-route] } }
forward: { default: drop, rules: [allow published tcp/8080] }
nat: [redirect tcp/8080 in wan to 10.20.0.5:80]
`
	closed := rows(t, text, strings.Replace(text, "published tcp/8080", "published tcp/8080 from 203.0.113.0/24", 1))
	if slices.ContainsFunc(closed, func(c Change) bool { return c.later }) || len(closed) == 0 {
		t.Errorf("rows of now alone: got %+v", closed)
	}
	moved := rows(t, text, strings.Replace(text, "[default-route]", "[eth0]", 1))
	if len(moved) == 0 || slices.ContainsFunc(moved, func(c Change) bool { return !c.later }) {
		t.Errorf("rows of another route alone: got %+v", moved)
	}
}

// TestDiffOfAcceleration: a flowtable carries flows, and decides nothing.
func TestDiffOfAcceleration(t *testing.T) {
	const text = `version: 1
zones: { lan: { interfaces: [lan0] } }
ban: ["2001:db8:77::5"]
input: { default: drop }
forward: { default: drop, accelerate: true }
`
	if changes := rows(t, text, strings.Replace(text, ", accelerate: true", "", 1)); slices.ContainsFunc(changes, func(c Change) bool { return c.Kind != Handled }) {
		t.Errorf("rows: %+v", changes)
	}
}

// TestDiffOfPublishedPorts: what another tool leads on is not for this host under either
// policy; where a line of nat leads it first, both are told.
func TestDiffOfPublishedPorts(t *testing.T) {
	const text = "version: 1\nzones: { wan: { interfaces: [eth0] } }\ninput: { default: drop, rules: [allow tcp/8080 ipv4] }\nforward: { default: drop, rules: [allow published tcp/8080] }\n"
	redirects := text + "nat: ['redirect tcp/8080 in wan to 10.20.0.5:80']\n"
	for _, c := range []struct {
		old, next string
		told      bool
	}{
		{text, strings.Replace(text, "tcp/8080 ipv4", "tcp/8081 ipv4", 1), false},
		{text, strings.Replace(text, "allow tcp/8080 ipv4", "", 1), false},
		{text, redirects, true},
		{redirects, text, true},
	} {
		r := []*resolve.Resolved{resolved(t, "old.yaml", c.old), resolved(t, "new.yaml", c.next)}
		for _, r := range r {
			r.Facts.Published = []host.Published{{Protocol: "tcp", Port: 8080, To: netip.MustParseAddrPort("172.17.0.2:80")}}
			r.Facts.ForeignChains = []host.ForeignChain{{Type: "nat", Hook: "prerouting", Rewrites: true}}
		}
		d, err := Compare(t.Context(), compiled(t, r[0]), compiled(t, r[1]), geo.Snapshot)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, row := range d.Changes {
			if e := row.Example.packet; e.Destination != netip.MustParseAddr("198.51.100.1") || e.Port != 8080 || e.State != packet.New || e.DNAT {
				continue
			}
			if how := slices.Concat(row.Old.How, row.New.How); !c.told || !slices.Contains(how, "led to 172.17.0.2:80 by another tool") {
				t.Errorf("from\n%s to\n%s: %s, %q", c.old, c.next, row.Kind, how)
			}
		}
	}
}

// TestDiffOfUnknownHost: what nat begins to lead away no longer comes to a host of which
// nothing is known.
func TestDiffOfUnknownHost(t *testing.T) {
	const text = "version: 1\nzones: { wan: { interfaces: [eth0] } }\ninput: { default: allow }\nforward: { default: drop }\n"
	old, next := resolved(t, "old.yaml", text), resolved(t, "new.yaml", text+"nat: ['redirect tcp/8080 in wan to 10.0.0.9:80']\n")
	old.Facts, next.Facts = host.Facts{}, host.Facts{}
	d, err := Compare(t.Context(), compiled(t, old), compiled(t, next), geo.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Changes) == 0 || d.Changes[0].Kind != Closed {
		t.Errorf("rows: %+v", d.Changes)
	}
}

// TestQueryOfExpectedAtPublishedPorts: another tool leads on what another flow expects as
// it does what is new.
func TestQueryOfExpectedAtPublishedPorts(t *testing.T) {
	r := resolved(t, "policy.yaml", "version: 1\ninput: { default: drop, rules: [allow tcp/8080 ipv4] }\nforward: { default: drop, rules: [allow published tcp/8080] }\n")
	r.Facts.Published = []host.Published{{Protocol: "tcp", Port: 8080, To: netip.MustParseAddrPort("172.17.0.2:80")}}
	answers, err := Query(compiled(t, r), Words{States: []packet.State{packet.Related}}, []program.Verdict{program.Accept}, geo.Snapshot)
	if led := func(a Answer) bool { return slices.Contains(a.When, "led to 172.17.0.2:80 by another tool") }; err != nil || !slices.ContainsFunc(answers, led) {
		t.Errorf("%v: answers are %+v", err, answers)
	}
}
