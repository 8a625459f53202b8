package kerneltest

import (
	"fmt"
	"net/netip"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/language/policy"
)

// TestOverBans: who is let in over bans goes by them with what it is let in to, to the
// host, through it, to published ports and past connection tracking, and gets its answers;
// all else that it sends, and all that begins towards it, stays banned.
func TestOverBans(t *testing.T) {
	c := newTown(t)
	p, err := policy.Load(policyFile(t, sides+`
ban: [192.0.2.0/24, "2001:db8:bad::/48", "2001:db8:99::/48"]
tracking: { bypass: [udp/53] }
input:
  default: drop
  rules: [allow ssh, allow http, allow ping]
forward:
  default: drop
  rules: [allow any from lan to wan, allow http]
output: { default: allow }
nat:
  - redirect tcp/8080 in wan to 10.20.0.5:80
`))
	if err != nil {
		t.Fatal(err)
	}
	allowed := []string{
		"192.0.2.66 [tcp/8080, tcp/443, udp/53, tcp/7777] over bans", "192.0.2.66 icmp echo-request over bans",
		"2001:db8:bad::/48 tcp/22 over bans", "192.0.2.7 any over bans", "2001:db8:99::7 tcp/22",
	}
	for n := range 12 { // alike, for sets of addresses and ports
		allowed = append(allowed, fmt.Sprintf("198.51.100.%d tcp/%d over bans", 100+n, 1000+n), fmt.Sprintf("2001:db8:200::%d udp/%d over bans", n, 1000+n%3))
	}
	allow(t, p, allowed)
	resolved, err := resolvePolicy(p, factsOf(t, c.host))
	if err != nil {
		t.Fatal(err)
	}
	artifact := applyResolved(t, c.host, resolved)
	c.try(t, `
		villain > host tcp4/8080   = answered as villain
		villain > inside tcp4/443  = answered as villain
		villain > inside tcp4/80   = silent
		villain > host udp4/53     = answered
		villain > host udp4/9000   = silent
		villain > host tcp4/22     = silent
		villain > host ping4       = answered
		villain > host tcp6/22     = answered
		villain > host tcp6/80     = silent
		villain > host ping6       = silent
		stranger > host tcp4/9000  = answered
		stranger > inside udp4/443 = answered
		stranger > host tcp6/22    = silent
		host > villain tcp4/443    = silent
		host > villain ping4       = silent
		host > stranger tcp4/80    = silent
		inside > villain tcp4/443  = silent
		inside > stranger udp4/53  = silent
		office > host tcp/22       = answered
	`, false)
	// By its port, what begins here looks like an answer.
	from := netip.AddrPortFrom(place("host", false), 7777)
	if r := c.host.TryTCP(testnet.TCPTry{From: from, To: at(place("villain", false), 80), Patience: short}); r.Outcome != testnet.Silent {
		t.Errorf("from the port of a service that it is let in to: %v", r)
	}
	if t.Failed() {
		t.Log(artifact.Text())
	}
}
