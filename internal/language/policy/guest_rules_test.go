package policy

import (
	"fmt"
	"maps"
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
		"forward: {rules: [allow ssh to 10.30.0.6]}":                         `guest-rules/vm-1.yaml:2:32: 10.30.0.6 is outside the scope of this file: to 10.30.0.5`,
		"forward: {rules: [allow ssh]}":                                      "is outside the scope of this file: to 10.30.0.5, or from 10.30.0.5",
		"forward: {rules: [allow ssh to not me]}":                            "not me may be outside",
		"forward: {rules: [allow ssh from office to pg]}":                    "set \"pg\" is not a list of addresses",
		"forward: {default: allow, rules: [allow ssh to me]}":                "default cannot be set in the rules of a guest",
		"forward: {rules: [\"allow ssh to me limit 3/s each then ban 1h\"]}": "",
		"input: {rules: [allow ssh to me]}":                                  "input cannot be used in the rules of a guest",
		"only: guests app=pg\nforward: {rules: [allow ssh to me]}":           "only cannot be used in the rules of a guest",
		"hosts: role=db":                                       "hosts cannot be used in the rules of a guest",
		"guests: {enforce: forward}":                           "guests cannot be used in the rules of a guest",
		"nat: [masquerade out wan]":                            "nat cannot be used in the rules of a guest",
		"never-ban: [192.0.2.1]":                               "never-ban cannot be used in the rules of a guest",
		"exceptions: none":                                     "exceptions cannot be used in the rules of a guest",
		"sets: {mine: {url: \"https://lists.example.net/a\"}}": "must be a list of addresses in the rules of a guest",
		"forward: {rules: [allow ssh to mee]}":                 `unknown set or zone "mee", did you mean "me"`,
		"expect: [deny ssh to 10.30.0.6]":                      "10.30.0.6 is outside",
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

// What is in a network namespace is what is forwarded to and from its guests, and none of
// it stands on the host.
func TestGuestsOfNamespace(t *testing.T) {
	t.Parallel()
	texts := map[string]string{
		"fleet.yaml": "version: 1\nfleet: example.net\nparts: [\"*.yaml\", \"*/*.yaml\"]\nsets: {pg: {guests: app=pg, within: 10.30.0.0/16}}\nguests: {public: 203.0.113.0/24}\n",
		"base.yaml": `version: 1
ban: 192.0.2.66
guests: {enforce: namespace, public: map}
zones: {eth0: {interfaces: eth0}}
input: {default: drop, rules: [allow ssh]}
forward: {default: drop, rules: [allow any from guests to any, allow https to pg]}
nat: [masquerade out eth0]
expect: [deny telnet, deny telnet to guests on forward]
`,
		"guest-rules/vm-1.yaml": "version: 1\nforward: {rules: [allow smtp to me]}\n",
		"guest-rules/vm-2.yaml": "version: 1\nforward: {rules: [allow imap to me]}\n",
	}
	const vm1 = "  vm-1: {interface: tap0, netns: r-1, addresses: 10.30.0.5, public: 203.0.113.5, rules: guest-rules/vm-1.yaml}\n"
	const vm2 = "  vm-2: {interface: tap0, addresses: 10.30.0.6, public: 203.0.113.6, rules: guest-rules/vm-2.yaml}\n"
	head := "version: 1\nfleet: %s\nhost: hv-1\nguests:\n"
	texts["hv-1.yaml"] = strings.Replace(head, "%s", "fleet.yaml", 1) + vm1 + vm2
	texts["guest-netns/r-1.yaml"] = strings.Replace(head, "%s", "../fleet.yaml", 1) + vm1 + "netns: r-1\n"
	read := func(name string, texts map[string]string) (*Policy, error) {
		data := map[string][]byte{}
		for name, text := range texts {
			data[name] = []byte(text)
		}
		return LoadTexts(name, data)
	}
	summary := func(name string) string {
		p, err := read(name, texts)
		if err != nil {
			t.Fatal(err)
		}
		out := fmt.Sprint(p.Input != nil, len(p.Ban), len(p.Expect), len(p.Set("guests").Elements))
		for _, h := range p.Held {
			out += " " + h.Guest + " by " + h.Text
		}
		for _, n := range p.NAT {
			out += "; " + n.Text
		}
		return out + "; " + forwardTexts(p)
	}
	for name, want := range map[string]string{
		"hv-1.yaml":            "true 1 2 2 vm-2 by guests: enforce: namespace; map 203.0.113.6 to 10.30.0.6; masquerade out eth0; allow any from guests; allow https to pg; allow smtp to me; allow imap to me",
		"guest-netns/r-1.yaml": "false 0 1 1 vm-1 by guests: enforce: namespace; map 203.0.113.5 to 10.30.0.5; allow any from guests; allow https to pg; allow smtp to me",
	} {
		if got := summary(name); got != want {
			t.Errorf("%s:\n%s\n%s", name, got, want)
		}
	}
	for _, c := range []struct{ file, from, to, want string }{
		{"base.yaml", "namespace", "forward", "hv-1.yaml:5:34: guest vm-1 is in network namespace r-1, which has no policy"},
		{"hv-1.yaml", "r-1", "../r", `hv-1.yaml:5:34: guest vm-1: "../r" is not the name of a network namespace`},
		{"guest-netns/r-1.yaml", "netns: r-1\n", "netns: r-2\n", "guest-netns/r-1.yaml:5:3: guest vm-1: it is not in network namespace r-2"},
	} {
		wrong := maps.Clone(texts)
		wrong[c.file] = strings.Replace(wrong[c.file], c.from, c.to, 1)
		name := c.file
		if name == "base.yaml" {
			name = "hv-1.yaml"
		}
		if _, err := read(name, wrong); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.want, err)
		}
	}
}
