package policy

import (
	"strings"
	"testing"
)

const askedPolicy = `version: 1
zones:
  wan: { interfaces: [eth0] }
  lan: { interfaces: [lan0], networks: [10.20.0.0/24] }
sets:
  office: [203.0.113.0/24]
services:
  web: [tcp/80, tcp/443]
`

func TestAsking(t *testing.T) {
	p, err := LoadData("policy.yaml", []byte(askedPolicy))
	if err != nil {
		t.Fatal(err)
	}
	a := p.Asking()
	services := func(text string) (string, error) {
		refs, err := a.Services("--service", text)
		var out []string
		for _, r := range refs {
			out = append(out, r.Text)
			for _, m := range r.Matches {
				out = append(out, "="+m.String())
			}
		}
		return strings.Join(out, " "), err
	}
	who := func(noZone bool) func(string) (string, error) {
		return func(text string) (string, error) {
			w, err := a.Who("--from", text, "from", noZone)
			if w == nil {
				return "anybody", err
			}
			return w.canonical(), err
		}
	}
	zone := func(text string) (string, error) {
		w, err := a.Zone("--in", text, "in")
		if w == nil {
			return "", err
		}
		return w.Text, err
	}
	for _, test := range []struct {
		name, text string
		read       func(string) (string, error)
		want, fail string // fail: the whole error
	}{
		{"policy's service", "web", services, "web =tcp/80, tcp/443", ""},
		{"built-in", "ssh", services, "ssh =tcp/22", ""},
		{"port", "tcp/22", services, "tcp/22 =tcp/22", ""},
		{"icmp", "icmp echo-request", services, "icmp echo-request =icmp echo-request", ""},
		{"list", "[ssh, udp/53]", services, "ssh =tcp/22 udp/53 =udp/53", ""},
		{"any", "any", services, "", ""},
		{"unknown service", "htpp", services, "", "--service:1:1: unknown service \"htpp\", did you mean \"http\"?\n    htpp\n    ^"},
		{"two services", "ssh http", services, "", "--service:1:5: unexpected \"http\"\n    ssh http\n        ^\nhint: put several into a list: [A, B]"},
		{"nothing", "", services, "", "--service:1:1: expected a service, found the end of the line\nhint: write a name such as ssh, or tcp/80, udp/53, icmp echo-request, proto/112"},
		{"set", "office", who(false), "office", ""},
		{"not", "not [office, 192.0.2.0/24]", who(false), "not [office, 192.0.2.0/24]", ""},
		{"anybody", "any", who(false), "anybody", ""},
		{"zone", "lan", who(false), "lan", ""},
		{"zone without sense", "lan", who(true), "", "--from:1:1: zone \"lan\" cannot be used after from in output: packets from this host have no incoming interface\n    lan\n    ^\nhint: write from ADDRESS for one of this host's own, out ZONE for the interface, or put the rule under forward"},
		{"unknown set", "not offce", who(false), "", "--from:1:5: unknown set or zone \"offce\", did you mean \"office\"?\n    not offce\n        ^"},
		{"bad address", "192.0.2.0/33", who(false), "", "--from:1:1: "},
		{"zone alone", "wan", zone, "wan", ""},
		{"set as zone", "office", zone, "", "--in:1:1: \"office\" is a set, but in takes a zone\n    office\n    ^\nhint: write from or to for a set"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := test.read(test.text)
			switch {
			case test.fail == "" && err != nil:
				t.Fatal(err)
			case test.fail == "" && got != test.want:
				t.Errorf("got %q, want %q", got, test.want)
			case test.fail != "" && (err == nil || !strings.HasPrefix(err.Error(), test.fail)):
				t.Errorf("got the error\n%v\nwant\n%s", err, test.fail)
			}
		})
	}
}

func FuzzAsking(f *testing.F) {
	for _, text := range []string{"web", "not [office, lan]", "icmp echo-request", "[", "\"x", "tcp/1-2", "any", "é*"} {
		f.Add(text)
	}
	p, err := LoadData("policy.yaml", []byte(askedPolicy))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a := p.Asking()
		refs, err := a.Services("--service", text)
		if err == nil {
			for _, r := range refs {
				if len(r.Matches) == 0 {
					t.Errorf("%q: %s means nothing", text, r.Text)
				}
			}
		}
		if w, err := a.Who("--from", text, "from", false); err == nil && w != nil && len(w.Items) == 0 {
			t.Errorf("%q: nobody", text)
		}
		_, _ = a.Zone("--in", text, "in")
	})
}
