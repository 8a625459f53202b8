package query

import (
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/base/packet"
	"sluice/internal/language/geo"
	"sluice/internal/program"
	"sluice/internal/system/host"
)

// TestRedirectToWhereItGoes: what a redirect leads to where it goes already is not
// rewritten, so it is not published; the rest of the redirect is.
func TestRedirectToWhereItGoes(t *testing.T) {
	for _, c := range []struct{ nat, published, want string }{
		{"tcp/8080 on 198.51.100.1 to 198.51.100.1:8080", "tcp/8080", ""},
		{"tcp/8080 on 198.51.100.1 to 198.51.100.1", "tcp/8080", ""},
		{"tcp/8080-8081 on 198.51.100.1 to 198.51.100.1:8080", "tcp/8080-8081", "tcp/8081"},
	} {
		text := "version: 1\ninput: {default: drop, rules: [allow published " + c.published + "]}\nnat: ['redirect " + c.nat + "']\n"
		w := Words{States: []packet.State{packet.New}, Hook: "input", Service: "tcp/8080-8081", To: "198.51.100.1"}
		if c.want == "" {
			w.Service = c.published
		}
		answers, err := Query(compiled(t, resolved(t, "policy.yaml", text)), w, []program.Verdict{program.Accept}, geo.Snapshot)
		if err != nil {
			t.Errorf("%s: %v", c.nat, err)
			continue
		}
		got := ""
		for _, a := range answers {
			got += a.Service()
		}
		if got != c.want {
			t.Errorf("%s: allowed is %q, want %q", c.nat, got, c.want)
		}
	}
}

// TestPublishedAtOneAddress: what another tool leads on came to one of the host's
// addresses, and a rule may name which.
func TestPublishedAtOneAddress(t *testing.T) {
	r := resolved(t, "policy.yaml", "version: 1\nforward: {default: drop, rules: [allow published tcp to 198.51.100.1]}\n")
	r.Facts.Published = []host.Published{{Protocol: "tcp", Port: 8080, To: netip.MustParseAddrPort("172.17.0.2:80")}}
	for to, want := range map[string]string{"": "198.51.100.1:8080", "198.51.100.1": "198.51.100.1:8080", "10.20.0.1": "", "172.17.0.2": "198.51.100.1:8080"} {
		w := Words{States: []packet.State{packet.New}, Hook: "forward", Service: "tcp", To: to}
		answers, err := Query(compiled(t, r), w, []program.Verdict{program.Accept}, geo.Snapshot)
		got := ""
		for _, a := range answers {
			got += netip.AddrPortFrom(a.Example.packet.Destination, a.Example.packet.Port).String()
		}
		if err != nil || got != want {
			t.Errorf("to %q: %v: allowed is %q, want %q", to, err, got, want)
		}
	}
}

// TestBansBesideAFlowtable: what comes to this host is for an address of the host, or of
// all of its network, which no ban is about there.
func TestBansBesideAFlowtable(t *testing.T) {
	r := resolved(t, "policy.yaml", `version: 1
zones:
  lan: { interfaces: [lan0] }
sets:
  some: [10.20.0.175, 10.20.0.255]
ban: [some]
input: { default: allow, rules: [drop tcp/7] }
forward: { default: drop, accelerate: true }
`)
	for _, state := range []packet.State{packet.New, packet.Established} {
		w := Words{States: []packet.State{state}, Hook: "input", Service: "tcp/80"}
		answers, err := Query(compiled(t, r), w, []program.Verdict{program.Drop}, geo.Snapshot)
		if err != nil || len(answers) != 1 || answers[0].From.Name != "some" || answers[0].To != nil {
			t.Errorf("%s: %v: dropped is %v", state, err, answers)
		}
	}
}

// TestListenersMappedWithoutState: a map without state keeps out of tracking what goes to
// it, also what the kernel never tracks.
func TestListenersMappedWithoutState(t *testing.T) {
	r := resolved(t, "policy.yaml", "version: 1\ninput: {default: drop}\nforward: {default: drop}\nnat: ['map 2001:db8:100::/64 to 2001:db8:20::/64 stateless']\n")
	w := Words{States: []packet.State{packet.Established}, Service: "icmp"}
	if _, err := Query(compiled(t, r), w, []program.Verdict{program.Drop}, geo.Snapshot); err != nil {
		t.Error(err)
	}
}

// TestPublishedFromMapped: what comes to a published port is for this host, which a map
// without state is not about, and is tracked when another tool leads it on.
func TestPublishedFromMapped(t *testing.T) {
	r := resolved(t, "policy.yaml", "version: 1\nforward: {default: reject, rules: [allow tcp/40000]}\nnat: ['map 198.51.100.96/30 to 10.20.0.20/30 stateless']\n")
	r.Facts.Published = []host.Published{{Protocol: "tcp", Port: 8080, To: netip.MustParseAddrPort("172.17.0.2:80")}}
	w := Words{States: []packet.State{packet.New}, Hook: "forward", Service: "tcp/8080", From: "10.20.0.21"}
	answers, err := Query(compiled(t, r), w, nil, geo.Snapshot)
	led := slices.DeleteFunc(answers, func(a Answer) bool { return !slices.Contains(a.When, "led to 172.17.0.2:80 by another tool") })
	if err != nil || len(led) != 1 || led[0].Verdict != "rejected" {
		t.Errorf("%v: of what is led on is said %+v", err, led)
	}
}
