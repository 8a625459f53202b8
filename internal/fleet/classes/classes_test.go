package classes

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"sluice/internal/engine"
	"sluice/internal/fleet/inventory"
	"sluice/internal/language/lists"
)

// read reads a fleet whose files are an archive.
func read(t *testing.T, archive string) *Fleet {
	t.Helper()
	dir := t.TempDir()
	if err := txtar.Write(txtar.Parse([]byte(archive)), dir); err != nil {
		t.Fatal(err)
	}
	inv, err := inventory.Load(filepath.Join(dir, InventoryFile))
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	copies := lists.Store{Dir: filepath.Join(state, "lists")}
	for _, name := range []string{"mon", "scan"} {
		if err := copies.Put("https://lists.example.net/"+name+".txt", []byte("203.0.113.66\n")); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Read(dir, nil, inv, &engine.Sources{State: state, Offline: true})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// classesOf are the hosts of each class.
func classesOf(t *testing.T, f *Fleet) string {
	t.Helper()
	list, found, err := f.Classes(t.Context())
	if err != nil || len(found) > 0 {
		t.Fatal(found, err)
	}
	var out []string
	for _, c := range list {
		var names []string
		for _, h := range c.Hosts {
			names = append(names, h.Name)
		}
		out = append(out, strings.Join(names, " "))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

const fourHosts = `
-- fleet.yaml --
version: 1
fleet: example.net
parts: [p.yaml]
sets:
  web: { hosts: role=web, within: 203.0.113.0/24 }
  vms: { guests: app=api, within: 10.30.0.0/16 }
-- inventory.yaml --
version: 1
hosts:
  a: { labels: {role: web}, addresses: 203.0.113.1, facts: a.json }
  b: { labels: {role: web}, addresses: 203.0.113.2, facts: b.json }
  c: { labels: {role: db}, addresses: 203.0.113.3, facts: c.json }
  d: { labels: {role: db}, addresses: 203.0.113.4, facts: d.json }
-- a.json --
{"known":true,"memory-bytes":5000,"interfaces":[{"name":"e","index":2,"addresses":["203.0.113.1/24"]}],"local":["203.0.113.1/32"],"gateways":["203.0.113.254"]}
-- b.json --
{"known":true,"memory-bytes":6000,"interfaces":[{"name":"e","index":3,"addresses":["203.0.113.2/24"]}],"local":["203.0.113.2/32"],"gateways":["203.0.113.254"]}
-- c.json --
{"known":true,"memory-bytes":6000,"interfaces":[{"name":"e","index":3,"addresses":["203.0.113.3/24"]}],"local":["203.0.113.3/32"],"gateways":["203.0.113.253"]}
-- d.json --
{"known":true,"memory-bytes":6000,"interfaces":[{"name":"e","index":3,"addresses":["203.0.113.4/24"]}],"local":["203.0.113.4/32"],"gateways":["203.0.113.3"]}
-- p.yaml --
version: 1
`

// Hosts are one class unless the policy can tell them apart.
func TestClasses(t *testing.T) {
	for rules, want := range map[string]string{
		"input: { default: drop, rules: [allow ssh] }": "a b c d",
		// By a set that some are in, and that names each.
		"input: { default: drop, rules: [allow ssh from web] }": "a b, c d",
		// By an address, of the host or of another that its facts name.
		"input: { default: drop, rules: [allow ssh to 203.0.113.2] }":      "a c d, b",
		"input: { default: drop, rules: [allow ssh from 203.0.113.254] }":  "a b, c d",
		"input: { default: drop, rules: [allow ssh from 203.0.113.3] }":    "a b, c, d",
		"input: { default: drop, rules: [allow ssh from 203.0.113.2/31] }": "a, b c, d",
		// In an expectation, and in a set of a set.
		"input: { default: drop }\nexpect: [deny ssh to 203.0.113.1]":                            "a, b c d",
		"sets: { all: { union: [web] } }\ninput: { default: drop, rules: [allow ssh from all] }": "a b, c d",
		"sets: { one: 203.0.113.1 }\ninput: { default: drop }":                                   "a b c d",
		"zones: { lan: { networks: 203.0.113.0/31 } }\nforward: { default: drop }":               "a, b c d",
	} {
		archive := strings.Replace(fourHosts, "-- p.yaml --\nversion: 1\n", "-- p.yaml --\nversion: 1\n"+rules+"\n", 1)
		if got := classesOf(t, read(t, archive)); got != want {
			t.Errorf("%s\nclasses %s\nwant    %s", rules, got, want)
		}
	}
}

// A fact that is not an address parts hosts, one of a moment does not.
func TestFacts(t *testing.T) {
	archive := strings.Replace(fourHosts, "-- p.yaml --\nversion: 1\n", "-- p.yaml --\nversion: 1\ninput: { default: drop }\n", 1)
	for change, want := range map[string]string{
		`"conntrack-count":7`: "a b c d", `"ssh-peers":[{"remote":"192.0.2.1:4000","local":"203.0.113.4:22"}]`: "a b c d",
		`"namespace":"d"`:    "a b c d",
		`"forwarding4":true`: "a b c, d", `"conntrack-max":1000000`: "a b c, d", `"non-local-bind":true`: "a b c, d",
		`"memory-bytes":60000`: "a b c, d", `"resolvers":["192.0.2.53"]`: "a b c, d",
	} {
		changed := strings.Replace(archive, "-- d.json --\n{", "-- d.json --\n{"+change+",", 1)
		if strings.HasPrefix(change, `"memory`) {
			changed = strings.Replace(changed, change+`,"known":true,"memory-bytes":6000`, `"known":true,`+change, 1)
		}
		if got := classesOf(t, read(t, changed)); got != want {
			t.Errorf("%s\nclasses %s\nwant    %s", change, got, want)
		}
	}
}

// Guests are symbols as hosts are: how many there are, what they are called and where they are
// attached parts no hosts, in which sets they are does.
func TestGuests(t *testing.T) {
	archive := strings.Replace(fourHosts, "-- p.yaml --\nversion: 1\n", "-- p.yaml --\nversion: 1\nforward: { default: drop, rules: [allow ssh to vms] }\n", 1)
	for _, host := range []string{"a", "b", "c", "d"} {
		tap := `"interfaces":[{"name":"` + host + `0","index":9,"kind":"tun"},`
		before, after, _ := strings.Cut(archive, "-- "+host+".json --\n")
		archive = before + "-- " + host + ".json --\n" + strings.Replace(after, `"interfaces":[`, tap, 1)
	}
	archive = strings.Replace(archive, "-- a.json --", `guests:
  a1: { host: a, interface: a0, addresses: 10.30.0.1, labels: {app: api} }
  a2: { host: a, interface: a1, addresses: 10.30.0.2, labels: {app: api} }
  a3: { host: a, interface: a2, addresses: 10.30.0.3, labels: {app: api} }
  b1: { host: b, interface: b0, addresses: 10.30.0.4, labels: {app: api} }
  b2: { host: b, interface: b1, addresses: 10.30.0.5, labels: {app: api} }
  c1: { host: c, interface: c0, addresses: 10.30.0.6, labels: {app: db} }
  c2: { host: c, interface: c1, addresses: 10.30.0.7, labels: {app: db} }
  d1: { host: d, interface: d0, addresses: 10.30.0.8, labels: {app: api} }
-- a.json --`, 1)
	if got, want := classesOf(t, read(t, archive)), "a b, c, d"; got != want {
		t.Errorf("classes %s, want %s", got, want)
	}
}
