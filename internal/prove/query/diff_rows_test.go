package query

import (
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/packet"
	"sluice/internal/language/geo"
)

func rows(t *testing.T, old, next string) []Change {
	t.Helper()
	d, err := Compare(compiled(t, resolved(t, "old.yaml", old)), compiled(t, resolved(t, "new.yaml", next)), geo.Snapshot)
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

// TestFragmentsOfNeighbourDiscovery: there are none, so nothing is said of those that
// bans before a flowtable do not know for what they are.
func TestFragmentsOfNeighbourDiscovery(t *testing.T) {
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
