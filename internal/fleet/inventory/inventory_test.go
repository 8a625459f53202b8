package inventory

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"

	"sluice/internal/base/selector"
	"sluice/internal/language/policy"
)

const sound = `version: 1
hosts:
  web-2: { labels: {role: web}, addresses: [203.0.113.6, "2001:db8:7::6"] }
  web-1: { labels: {role: web, env: prod}, addresses: 203.0.113.5, facts: facts/web.json }
  hv-1: { labels: {role: hypervisor} }
  bare:
guests:
  vm-2: { host: hv-1, interface: tap1, addresses: "2001:db8:30::/64", labels: {app: db} }
  vm-1: { host: hv-1, interface: tap0, addresses: [10.30.0.5], public: 203.0.113.9, labels: {app: api} }
`

func TestParse(t *testing.T) {
	inv, err := Parse("fleet/inventory.yaml", []byte(sound))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range inv.Hosts {
		names = append(names, inv.Hosts[i].Name)
	}
	if !slices.Equal(names, []string{"bare", "hv-1", "web-1", "web-2"}) {
		t.Errorf("hosts %v", names)
	}
	web := inv.Host("web-1")
	if web.Facts != "fleet/facts/web.json" || web.FactsPos.Line != 4 || web.Labels["env"] != "prod" {
		t.Errorf("web-1 is %+v", web)
	}
	guests := inv.Host("hv-1").Guests
	if len(guests) != 2 || guests[0].Name != "vm-1" || guests[0].Interface.Text != "tap0" || len(guests[0].Public) != 1 {
		t.Errorf("guests %+v", guests)
	}
	if inv.Host("web-3") != nil {
		t.Error("a host that is not there")
	}
	one, err := selector.Parse("host=web-1 or role=hypervisor")
	if err != nil {
		t.Fatal(err)
	}
	if !web.Selected(one) || inv.Host("web-2").Selected(one) || !inv.Host("bare").Selected(nil) {
		t.Error("the wrong hosts are selected")
	}
}

func TestMembers(t *testing.T) {
	inv, err := Parse("inventory.yaml", []byte(sound))
	if err != nil {
		t.Fatal(err)
	}
	members, err := inv.Members([]*policy.Set{
		{Name: "web", Hosts: &policy.Word{Text: "role=web"}},
		{Name: "api", Guests: &policy.Word{Text: "app=api or app=db"}},
		{Name: "none", Hosts: &policy.Word{Text: "role=mail"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"web": "203.0.113.5 203.0.113.6 2001:db8:7::6", "api": "10.30.0.5 2001:db8:30::/64", "none": ""} {
		var got []string
		for _, m := range members[name] {
			got = append(got, m.Range.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s holds %v, want %s", name, got, want)
		}
	}
}

// Each mistake is told at its place, with the way out.
func TestMistakes(t *testing.T) {
	many := strings.Builder{}
	for i := range 1_000_000 {
		fmt.Fprintf(&many, "l%d: a, ", i)
	}
	for text, want := range map[string]string{
		"":                                       "inventory.yaml:1:1: file is empty",
		"hosts: {a: }":                           "inventory.yaml:1:1: version is missing",
		"version: 2":                             "inventory.yaml:1:10: this sluice does not know version",
		"- a":                                    "inventory.yaml:1:1: the inventory must be a mapping",
		"version: 1\nhost:":                      `inventory.yaml:2:1: unknown key "host" in the inventory`,
		"version: 1\nhosts: {Web: }":             `inventory.yaml:2:9: "Web" is not the name of a host`,
		"version: 1\nhosts: {a: }\nhosts: {b: }": `inventory.yaml:3:1: key "hosts" is already on line 2`,
		"version: 1\nhosts: {a: {}, a: {}}":      `inventory.yaml:2:16: key "a" is already on line 2`,
		"version: 1\nhosts: {a: {labels: {host: b}}}":                             "inventory.yaml:2:22: the label host is the name of a host",
		"version: 1\nhosts: {a: {labels: {role: }}}":                              "inventory.yaml:2:28: a label is empty",
		"version: 1\nhosts: {a: {labels: {role: 'a b'}}}":                         "inventory.yaml:2:22: ",
		"version: 1\nhosts: {a: {addresses: 203.0.113.0/24}}":                     "inventory.yaml:2:24: a host has addresses, and 203.0.113.0/24 is many",
		"version: 1\nhosts: {a: {addresses: [203.0.113.5, 203.0.113.5]}}":         "inventory.yaml:2:38: duplicate 203.0.113.5 in addresses",
		"version: 1\nhosts: {a: {addresses: 203.0.113.555}}":                      "inventory.yaml:2:24: ",
		"version: 1\nguests: {vm: {host: b, interface: i, addresses: 192.0.2.1}}": `inventory.yaml:2:21: "vm" is on no host that is known: there is no "b" under hosts`,
		"version: 1\nhosts: {a: }\nguests: {vm: {host: a}}":                       `inventory.yaml:3:10: guest "vm" has no interface`,
		"version: 1\nhosts: {a: }\nguests: {vm: {host: a, interface: a/b}}":       `inventory.yaml:3:35: "a/b" is not the name of an interface`,
		"version: 1\nhosts: {a: &x {}, b: *x}":                                    "inventory.yaml:2:12: YAML anchors are not part of the language",
		"version: 1\nhosts: {a: {labels: {" + many.String()[:700_000] + "}}}":     "inventory.yaml:2:21: ",
		"version: 1\nhosts: {a: {labels: {" + many.String() + "}}}":               "inventory.yaml: file is larger than 8 MiB",
	} {
		_, err := Parse("inventory.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %.300v\nwant %s", text, err, want)
			continue
		}
		if n := strings.Count(err.Error(), "\n"); len(text) > 100_000 && n > 6 {
			t.Errorf("%.60s: the error has %d lines", text, n)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sound))
	f.Add([]byte("version: 1\nguests: {a: {host: b}}"))
	f.Add([]byte("hosts: [1, {a: b}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		inv, err := Parse("inventory.yaml", data)
		if (inv == nil) == (err == nil) {
			t.Fatalf("inventory %v, error %v", inv, err)
		}
		if inv == nil {
			return
		}
		for i := range inv.Hosts {
			h := &inv.Hosts[i]
			if inv.Host(h.Name) != h || i > 0 && inv.Hosts[i-1].Name >= h.Name {
				t.Errorf("host %q is not at its place", h.Name)
			}
			if len(h.Labels) > mostLabels || len(h.Addresses) > mostAddresses {
				t.Errorf("host %q has too much", h.Name)
			}
		}
	})
}

// TestSchema: a sound inventory fits the schema.
func TestSchema(t *testing.T) {
	var schema jsonschema.Schema
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := yaml.Load([]byte(sound), &v); err != nil {
		t.Fatal(err)
	}
	if err := resolved.Validate(v); err != nil {
		t.Error(err)
	}
}
