package policy

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// guestTexts are a host with guests, and what is done for them.
var guestTexts = map[string]string{
	"fleet.yaml":        "version: 1\nfleet: example.net\nparts: [parts/*.yaml]\nsets: {pg: {guests: app=postgres, within: [10.30.0.0/16, \"2001:db8:30::/48\"]}}\nguests: {public: [203.0.113.0/24, \"2001:db8::/64\"]}\n",
	"parts/50-db.yaml":  "",
	"parts/60-web.yaml": "",
	"parts/60-vms.yaml": `version: 1
hosts: role=hypervisor
guests: {enforce: forward, public: map}
zones: {wan: {interfaces: default-route}}
forward: {default: drop, rules: [allow postgresql to pg, allow any from guests to wan]}
nat: [masquerade from guests out wan]
`,
	"db-1.yaml": `version: 1
fleet: fleet.yaml
host: hv-1
labels: {role: hypervisor}
members: {pg: 10.30.0.6}
guests:
  vm-1: {interface: tap0, addresses: [10.30.0.5, "2001:db8:30::/64"], public: 203.0.113.9, labels: {app: api}}
  vm-2: {interface: tap1, addresses: 10.30.0.6}
`,
}

func TestGuests(t *testing.T) {
	p, err := LoadTexts("db-1.yaml", changed(guestTexts))
	if err != nil {
		t.Fatal(err)
	}
	var held []string
	for _, h := range p.Held {
		held = append(held, fmt.Sprintf("%s %s %s %s", h.Pos, h.Guest, h.Interface.Text, h.Sources()))
	}
	want := []string{
		"parts/60-vms.yaml:3:10 vm-1 tap0 0.0.0.0, 10.30.0.5, ::, 2001:db8:30::/64, fe80::/10",
		"parts/60-vms.yaml:3:10 vm-2 tap1 0.0.0.0, 10.30.0.6, ::, fe80::/10",
	}
	if diff := gocmp.Diff(want, held); diff != "" {
		t.Error(diff)
	}
	if len(p.NAT) != 2 || p.NAT[0].Text != "map 203.0.113.9 to 10.30.0.5" || p.NAT[0].Pos.String() != "parts/60-vms.yaml:3:28" || p.NAT[1].Kind != Masquerade {
		t.Errorf("%+v", p.NAT)
	}
	if own := p.Set("guests"); len(own.Elements) != 3 || !own.IsGroup() || own.Elements[0].Pos.String() != "db-1.yaml:7:39" {
		t.Errorf("%+v", own)
	}
	if len(p.Groups()) != 1 || p.Fleet.Guests[0].Labels["app"] != "api" {
		t.Errorf("%+v", p.Fleet)
	}
	view := &View{Host: "hv-2", Labels: map[string]string{"role": "hypervisor"}, Guests: []Guest{{Name: "a", Interface: Word{Text: "tap9"}, Addresses: ranges("10.30.1.1")}}}
	if p, err = (Reading{Texts: changed(guestTexts), View: view}).Load("fleet.yaml"); err != nil || len(p.Held) != 1 || len(p.NAT) != 1 {
		t.Errorf("%v %+v", err, p)
	}
	// Where guests may be attached, the file of the fleet may say.
	bounded := func(interfaces string) string {
		return strings.Replace(guestTexts["fleet.yaml"], "guests: {", "guests: {interfaces: "+interfaces+", ", 1)
	}
	fine := maps.Clone(guestTexts)
	fine["fleet.yaml"] = bounded("[tap0, \"tap*\"]")
	if _, err := LoadTexts("db-1.yaml", changed(fine)); err != nil {
		t.Error(err)
	}
	elsewhere := &View{Host: "hv-2", Guests: []Guest{{Name: "a", Interface: Word{Text: "eth0"}, Netns: Word{Text: "blue"}, Addresses: ranges("10.30.1.1")}}}
	fine["parts/60-vms.yaml"] = "version: 1\nguests: {enforce: namespace}\n"
	if _, err := (Reading{Texts: changed(fine), View: elsewhere}).Load("fleet.yaml"); err != nil {
		t.Error(err)
	}
	guest := func(text string) map[string]string {
		return map[string]string{"db-1.yaml": "version: 1\nfleet: fleet.yaml\nhost: hv-1\nlabels: {role: hypervisor}\nguests:\n  a: {interface: tap0, addresses: 10.30.0.5}\n  b: " + text + "\n"}
	}
	vms := func(text string) map[string]string {
		return map[string]string{"parts/60-vms.yaml": "version: 1\n" + text + "\n"}
	}
	for _, test := range []struct {
		with map[string]string
		want string
	}{
		{guest("{addresses: 10.30.0.6}"), "db-1.yaml:7:3: guest b: it has no interface; write interface: NAME"},
		{guest("{interface: tap1}"), "db-1.yaml:7:3: guest b: it has no address; write addresses: [10.30.0.5]"},
		{guest("{interface: tap0, addresses: 10.30.0.6}"), "db-1.yaml:7:18: guest b: tap0 is also the interface of guest a; give each guest an interface"},
		{guest("{interface: \"tap*\", addresses: 10.30.0.6}"), "db-1.yaml:7:18: guest b: tap* may be more than one interface; name one interface"},
		{guest("{interface: tap1, addresses: 10.30.0.0/24}"), "db-1.yaml:7:35: guest b: 10.30.0.0/24 is already in use, see db-1.yaml:6:35"},
		{guest("{interface: tap1, addresses: 10.30.0.6, public: 203.0.113.0/24}"), "db-1.yaml:7:54: guest b: public 203.0.113.0/24 is more than one address; write single addresses"},
		{guest("{interface: tap1, addresses: 10.30.0.6, public: \"2001:db8::9\"}"), "db-1.yaml:7:55: guest b has no IPv6 address for public 2001:db8::9; each public address needs an address of the guest"},
		{guest("{interface: tap1, addresses: 10.30.0.6, public: [203.0.113.1, 203.0.113.2]}"), "db-1.yaml:7:68: guest b has no IPv4 address for public 203.0.113.2"},
		{guest("{interface: tap1, addresses: [10.30.0.6, 10.31.0.1]}"), "db-1.yaml:7:47: guest b: 10.31.0.1 is not within any set by guests; give it an address within one of them, or add the address to the within of one in the file of the fleet"},
		{guest("{interface: tap1, addresses: 10.30.255.0/23}"), "db-1.yaml:7:35: "},
		{guest("{interface: tap1, addresses: 10.30.0.6, public: 198.51.100.9}"), "db-1.yaml:7:54: guest b: 198.51.100.9 is not a public address for guests; use one of guests: {public: […]} in the file of the fleet, or add this one there"},
		{map[string]string{"fleet.yaml": strings.Replace(guestTexts["fleet.yaml"], "guests: {public", "bans: {}\n#", 1)}, "db-1.yaml:7:79: guest vm-1: 203.0.113.9 is not a public address for guests; use one of guests: {public: […]} in the file of the fleet, or add this one there"},
		{map[string]string{"fleet.yaml": bounded("[tap0, \"vm*\"]")}, "db-1.yaml:8:21: guest vm-2: tap1 is not an interface for guests; use one of guests: {interfaces: […]} in the file of the fleet, or add this one there"},
		{map[string]string{"fleet.yaml": bounded("[]")}, "db-1.yaml:7:21: guest vm-1: tap0 is not an interface for guests"},
		{map[string]string{"fleet.yaml": bounded("[\"tap*\", \"tap 0\"]")}, "fleet.yaml:5:32: interface name \"tap 0\" contains \" \""},
		{guest("{interface: tap1, adresses: 10.30.0.6}"), "db-1.yaml:7:24: unknown key \"adresses\" in a guest"},
		{vms("guests: {enforce: bridge}"), "parts/60-vms.yaml:2:19: enforce must be forward or namespace, not \"bridge\"; write enforce: forward, or enforce: namespace"},
		{vms("guests: {public: route}"), "parts/60-vms.yaml:2:18: public must be map, not \"route\"; write public: map"},
		{vms("guests:"), "parts/60-vms.yaml:2:1: guests is empty; write guests: {enforce: forward}"},
		{vms("sets: {guests: [192.0.2.1]}"), "parts/60-vms.yaml:2:8: guests is a reserved name in a fleet; use another name"},
		{map[string]string{"parts/70-more.yaml": "version: 1\nguests: {enforce: forward}\n"}, "parts/70-more.yaml:2:10: enforce is already set, see parts/60-vms.yaml:3:19; both apply to host hv-1 (role=hypervisor)"},
	} {
		texts := maps.Clone(guestTexts)
		maps.Copy(texts, test.with)
		_, err := LoadTexts("db-1.yaml", changed(texts))
		checkFleetError(t, err, test.want)
	}
}

// A part of some guests speaks of these alone, is of hosts that have one, and stops nobody
// else.
func TestOnlyGuests(t *testing.T) {
	load := func(part string, r Reading) (*Policy, error) {
		texts := maps.Clone(guestTexts)
		texts["fleet.yaml"] = strings.Replace(texts["fleet.yaml"], "sets: {", "sets: {api: {guests: app=api, within: 10.30.0.0/16}, inner: {guests: app=api and tier=db, within: 10.30.0.0/16}, ", 1)
		texts["parts/20-shop.yaml"] = "version: 1\nonly: guests app=api\n" + part
		r.Texts = changed(texts)
		return r.Load("db-1.yaml")
	}
	const good = "services: {shop: tcp/8443}\nsets: {offices: [192.0.2.0/24], mine: [10.30.0.5]}\nforward:\n  rules:\n    - allow shop from offices to mine\n    - allow https to [api, inner, 10.30.0.5, 2001:db8:30::7]\nexpect: [deny ssh to api, allow shop from offices to mine]\n"
	p, err := load(good, Reading{})
	if err != nil {
		t.Fatal(err)
	}
	last := p.Forward.Rules[len(p.Forward.Rules)-2:]
	if !strings.HasPrefix(last[0].Text, "allow shop from offices to mine") || len(last[0].To.Items) != 1 || last[0].To.Items[0].Literal.String() != "10.30.0.5" || !p.Scoped("parts/20-shop.yaml") || p.Set("mine") != nil {
		t.Errorf("%+v %+v", last[0], last[0].To)
	}
	if len(p.Expect) != 2 || p.Expect[1].On != Forward || p.Expect[1].To.Items[0].Literal.String() != "10.30.0.5" || p.Expect[1].Pos.String() != "parts/20-shop.yaml:9:27" {
		t.Errorf("%+v", p.Expect)
	}
	for _, test := range []struct{ text, want string }{
		{"forward: {rules: [allow https]}\n", "parts/20-shop.yaml:3:19: the rule is outside the scope of this file: to guests app=api; write to guests app=api, or a part of it"},
		{"forward: {rules: [allow https to 10.30.0.6]}\n", "parts/20-shop.yaml:3:34: 10.30.0.6 is outside the scope of this file: to guests app=api"},
		{"forward: {rules: [allow https to pg]}\n", "parts/20-shop.yaml:3:34: set \"pg\" is not a list of addresses"},
		{"forward: {rules: [allow https to guests]}\n", "parts/20-shop.yaml:3:34: set \"guests\" is not a list of addresses"},
		{"forward: {rules: [allow https from api]}\n", "parts/20-shop.yaml:3:19: the rule is outside"},
		{"forward: {rules: [allow https to not api]}\n", "parts/20-shop.yaml:3:34: not api may be outside the scope of this file"},
		{"forward: {default: allow}\n", "parts/20-shop.yaml:3:11: default cannot be set in a part with only: it applies to everybody; put it into a part without only"},
		{"input: {rules: [allow ssh]}\n", "parts/20-shop.yaml:3:1: input cannot be used in a part with only: it applies to everybody"},
		{"nat: [masquerade out wan]\n", "parts/20-shop.yaml:3:1: nat cannot be used in a part with only"},
		{"guests: {enforce: forward}\n", "parts/20-shop.yaml:3:1: guests cannot be used in a part with only"},
		{"sets: {x: {url: \"https://lists.example.net/x\"}}\n", "parts/20-shop.yaml:3:8: set \"x\" must be a list of addresses in a part with only"},
		{"expect: [deny ssh]\n", "parts/20-shop.yaml:3:10: the expectation is outside the scope of this file: to guests app=api"},
		{"expect: ['deny ssh to [10.30.0.5, 10.30.0.6]']\n", "parts/20-shop.yaml:3:35: 10.30.0.6 is outside the scope of this file"},
		{"expect: [deny ssh to not api]\n", "parts/20-shop.yaml:3:22: not api may be outside the scope of this file"},
		{"expect: [deny ssh to 10.30.0.5 on input]\n", "parts/20-shop.yaml:3:10: input belongs to the host, but a part with only is for its guests; remove on input"},
		{"expect: [deny ssh to 10.30.0.5 by user root]\n", "parts/20-shop.yaml:3:10: users belong to the host"},
		{"sets: {pg: [10.30.0.5]}\n", "parts/20-shop.yaml:3:8: set \"pg\" is already a set, see fleet.yaml:4:"},
	} {
		_, err := load(test.text, Reading{})
		checkFleetError(t, err, test.want)
		// It stops nobody else, and keeps what was good.
		p, err := load(test.text, Reading{Parts: true, Good: func(string) []byte { return []byte("version: 1\nonly: guests app=api\n" + good) }})
		if err != nil || len(p.Broken) != 1 || !p.Broken[0].Kept || len(p.Forward.Rules) != 4 {
			t.Errorf("%s: %v", test.text, err)
		}
		if p, err = load(test.text, Reading{Parts: true}); err != nil || len(p.Broken) != 1 || len(p.Forward.Rules) != 2 {
			t.Errorf("%s: %v", test.text, err)
		}
	}
	for part, want := range map[string]string{
		"only: to 10.30.0.5":     "parts/20-shop.yaml:2:7: the scope of a part must be guests, not \"to 10.30.0.5\"; write only: guests app=shop",
		"only: guests app = = x": "parts/20-shop.yaml:2:20: only: \"=\" is no value of a label",
	} {
		texts := maps.Clone(guestTexts)
		texts["parts/20-shop.yaml"] = "version: 1\n" + part + "\n"
		_, err := Reading{Texts: changed(texts)}.Load("db-1.yaml")
		checkFleetError(t, err, want)
	}
	// One that cannot be read, or does not say of which guests it is, stops nobody else either.
	for _, text := range []string{"version: 1\nonly: guests app=api\nforward: {rules: [\n", "version: 1\nonly: to 10.30.0.5\n", "version: 1\nonly: guests app=other\nforward: [\n"} {
		texts := maps.Clone(guestTexts)
		texts["parts/20-shop.yaml"] = text
		r := Reading{Texts: changed(texts), Parts: true, Good: func(string) []byte {
			return []byte("version: 1\nonly: guests app=api\nforward: {rules: [allow https to 10.30.0.5]}\n")
		}}
		if p, err := r.Load("db-1.yaml"); err != nil || len(p.Broken) != 1 || !p.Broken[0].Kept || len(p.Forward.Rules) != 3 {
			t.Errorf("%s: %v", text, err)
		}
		r.Good = nil
		if p, err := r.Load("db-1.yaml"); err != nil || len(p.Broken) != 1 || p.Broken[0].Kept || len(p.Forward.Rules) != 2 {
			t.Errorf("%s: %v", text, err)
		}
		if p, err := r.ReadFleet("fleet.yaml"); err != nil || len(p.Broken) != 1 || p.Broken[0].File != "parts/20-shop.yaml" {
			t.Errorf("%s: %v", text, err)
		}
		if _, err := (Reading{Texts: r.Texts}).ReadFleet("fleet.yaml"); err == nil {
			t.Errorf("%s is read", text)
		}
	}
	// A host without such a guest reads it for its own mistakes alone.
	texts := maps.Clone(guestTexts)
	texts["parts/20-shop.yaml"] = "version: 1\nonly: guests app=other\nforward: {rules: [allow https to 10.99.0.1]}\n"
	if p, err = LoadTexts("db-1.yaml", changed(texts)); err != nil || len(p.Forward.Rules) != 2 || p.Fleet.Parts[1].Matches {
		t.Errorf("%v", err)
	}
	texts["parts/20-shop.yaml"] = "version: 1\nonly: guests app=other\ninput: {default: allow}\n"
	_, err = Reading{Texts: changed(texts)}.Load("db-1.yaml")
	checkFleetError(t, err, "parts/20-shop.yaml:3:1: input cannot be used in a part with only")
	if p, err = (Reading{Texts: changed(texts), Parts: true}).Load("db-1.yaml"); err != nil || len(p.Broken) != 0 || len(p.Forward.Rules) != 2 {
		t.Errorf("%v", err)
	}
}
