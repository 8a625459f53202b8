package query

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"sluice/internal/language/geo"
	"sluice/internal/prove/reach"
)

func TestBrief(t *testing.T) {
	const old = `version: 1
zones: { lan: { interfaces: [eth1] }, wan: { interfaces: [eth0] } }
sets: { office: [203.0.113.0/24], mail: [198.51.100.25] }
input:
  default: drop
  rules:
    - allow ssh from office
    - allow https
    - allow icmp echo-request
forward:
  default: drop
  rules:
    - allow tcp/5432 from office to 10.20.0.5
output:
  default: drop
  rules:
    - allow smtp to mail
`
	const next = `version: 1
zones: { lan: { interfaces: [eth1] }, wan: { interfaces: [eth0] } }
sets: { office: [203.0.113.0/24], mail: [198.51.100.25] }
input:
  default: drop
  rules:
    - drop from 192.0.2.0/24
    - allow ssh
    - allow https
    - reject tcp/113
    - allow tcp/25 in lan
forward:
  default: drop
  rules:
    - allow tcp/5432 from office to 10.20.0.6
output:
  default: drop
  rules:
    - allow smtp
`
	d, err := Compare(t.Context(), compiled(t, resolved(t, "old.yaml", old)), compiled(t, resolved(t, "new.yaml", next)), geo.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range d.Brief() {
		got = append(got, l.String())
	}
	want := []string{
		"closes icmp echo-request to everybody",
		"opens tcp/22 to anywhere except office and 192.0.2.0/24",
		"opens tcp/5432 from office to 10.20.0.6 (forward)",
		"opens tcp/25 to all but mail (output)",
		"opens tcp/25 to all but 192.0.2.0/24 by lan",
		"closes tcp/5432 from office to 10.20.0.5 (forward)",
		"closes tcp/443 to 192.0.2.0/24",
		"rejected instead of dropped: tcp/113 to all but 192.0.2.0/24",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
	wholeBrief(t, d)
}

// wholeBrief checks that each class is in one line.
func wholeBrief(t *testing.T, d *Diff) {
	t.Helper()
	classes, kinds := 0, map[Kind]bool{}
	for _, l := range d.Brief() {
		classes += l.Classes
		kinds[l.Kind] = true
	}
	if classes != len(d.Changes) {
		t.Errorf("%d classes in the lines of %d", classes, len(d.Changes))
	}
	for _, c := range d.Changes {
		if !kinds[c.Kind] {
			t.Errorf("nothing is said about what is %s", c.Kind)
		}
	}
}

// A comparison that nobody waits for any more ends.
func TestCompareStops(t *testing.T) {
	large := func(name string, first int) Compiled {
		text := "version: 1\nforward:\n  default: drop\n  rules:\n"
		for i := range 300 {
			text += fmt.Sprintf("    - allow tcp/%d from 192.0.%d.0/24 to 10.%d.0.0/16\n", first+i, i*7%256, i*13%256)
		}
		return compiled(t, resolved(t, name, text))
	}
	old, next := large("old.yaml", 1000), large("new.yaml", 1100)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Compare(ctx, old, next, geo.Snapshot); !errors.Is(err, reach.ErrStopped) {
		t.Errorf("the error is %v", err)
	}
}
