package policy

import (
	"strings"
	"testing"
)

// guestRules loads a host of two guests, of which the first one's owner has rules.
func guestRules(t *testing.T, rules string, tolerant bool, good string) (*Policy, error) {
	t.Helper()
	return Reading{Parts: tolerant, Good: func(name string) []byte {
		if name != "guest-rules/vm-1.yaml" || good == "" {
			return nil
		}
		return []byte(good)
	}, Texts: map[string][]byte{
		"host.yaml":             []byte("version: 1\nfleet: fleet.yaml\nhost: hv-1\nguests:\n  vm-1: {interface: tap0, addresses: [10.30.0.5], rules: guest-rules/vm-1.yaml}\n  vm-2: {interface: tap1, addresses: [10.30.0.6]}\n"),
		"fleet.yaml":            []byte("version: 1\nfleet: example.net\nparts: [\"*.yaml\", \"*/*.yaml\"]\nsets: {office: [198.51.100.0/24], pg: {guests: app=pg, within: 10.30.0.0/16}}\n"),
		"base.yaml":             []byte("version: 1\nguests: {enforce: forward}\nforward: {default: drop, rules: [allow ssh from office to guests]}\n"),
		"guest-rules/vm-1.yaml": []byte(rules),
	}}.Load("host.yaml")
}

func forwardTexts(p *Policy) string {
	var all []string
	for _, r := range p.Forward.Rules {
		all = append(all, r.Text)
	}
	return strings.Join(all, "; ")
}

// TestGuestRules: a guest's owner speaks of that guest, behind all parts, and opens no other.
func TestGuestRules(t *testing.T) {
	t.Parallel()
	p, err := guestRules(t, "version: 1\nsets: {mine: [192.0.2.0/24]}\nservices: {app: tcp/8443}\nforward:\n  rules:\n    - allow https from me to any\n    - allow app from mine to me\n    - allow tcp/5432 to 10.30.0.5\nexpect: [deny tcp/22 from 192.0.2.1 to me]\n", false, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := forwardTexts(p); got != "allow ssh from office to guests; allow app from mine to me; allow tcp/5432 to 10.30.0.5; drop any from guests to guests; allow https from me" {
		t.Error(got)
	}
	if who := p.Forward.Rules[1].To.canonical(); who != "10.30.0.5" {
		t.Errorf("me is %s", who)
	}
	if len(p.Expect) != 1 || p.Expect[0].On != Forward || p.Expect[0].To.canonical() != "10.30.0.5" {
		t.Errorf("%+v", p.Expect)
	}
	if len(p.Fleet.Parts) != 1 {
		t.Errorf("rules of a guest are a part: %+v", p.Fleet.Parts)
	}
	for rules, want := range map[string]string{
		"forward: {rules: [allow ssh to 10.30.0.6]}":                         `guest-rules/vm-1.yaml:2:32: 10.30.0.6 is more than this file may speak of: to 10.30.0.5`,
		"forward: {rules: [allow ssh]}":                                      "has to keep to what this file may speak of: to 10.30.0.5, or from 10.30.0.5",
		"forward: {rules: [allow ssh to not me]}":                            "not me may be more",
		"forward: {rules: [allow ssh from office to pg]}":                    "set \"pg\" is not a list of addresses",
		"forward: {default: allow, rules: [allow ssh to me]}":                "default cannot be set in the rules of a guest",
		"forward: {rules: [\"allow ssh to me limit 3/s each then ban 1h\"]}": "",
		"input: {rules: [allow ssh to me]}":                                  "input cannot stand in the rules of a guest",
		"only: guests app=pg\nforward: {rules: [allow ssh to me]}":           "only cannot stand in the rules of a guest",
		"hosts: role=db":                                       "hosts cannot stand in the rules of a guest",
		"guests: {enforce: forward}":                           "guests cannot stand in the rules of a guest",
		"nat: [masquerade out wan]":                            "nat cannot stand in the rules of a guest",
		"never-ban: [192.0.2.1]":                               "never-ban cannot stand in the rules of a guest",
		"exceptions: none":                                     "exceptions cannot stand in the rules of a guest",
		"sets: {mine: {url: \"https://lists.example.net/a\"}}": "is not a list of addresses, as those of the rules of a guest are",
		"forward: {rules: [allow ssh to mee]}":                 `unknown set or zone "mee", did you mean "me"`,
		"expect: [deny ssh to 10.30.0.6]":                      "10.30.0.6 is more",
	} {
		text := "version: 1\n" + rules + "\n"
		if _, err := guestRules(t, text, false, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", rules, err)
		}
		// A host keeps the last text that had no errors, or does without, and goes on.
		p, err := guestRules(t, text, true, "version: 1\nforward: {rules: [allow smtp to me]}\n")
		if err != nil || len(p.Broken) != 1 || !p.Broken[0].Kept || forwardTexts(p) != "allow ssh from office to guests; allow smtp to me" {
			t.Errorf("%s: %v, %+v", rules, err, p)
		}
		if p, err := guestRules(t, text, true, "version: 1\nforward: {rules: [allow smtp to 10.30.0.9]}\n"); err != nil || len(p.Broken) != 1 || p.Broken[0].Kept || forwardTexts(p) != "allow ssh from office to guests" {
			t.Errorf("%s, with an older text of another address: %v, %+v", rules, err, p)
		}
	}
}
