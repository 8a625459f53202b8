package kerneltest

import (
	"strings"
	"testing"
)

// expectations are what a foreign chain expects of whoever is asked for tcp/80,
// tcp/443 and udp/53: connections back to tcp/8080, tcp/9000 and udp/5432. The
// counters say that connection tracking took them for related.
const expectations = `
table inet other {
	ct expectation web4 { protocol tcp; dport 8080; timeout 1m; size 12; l3proto ip; }
	ct expectation web6 { protocol tcp; dport 8080; timeout 1m; size 12; l3proto ip6; }
	ct expectation open4 { protocol tcp; dport 9000; timeout 1m; size 12; l3proto ip; }
	ct expectation open6 { protocol tcp; dport 9000; timeout 1m; size 12; l3proto ip6; }
	ct expectation names4 { protocol udp; dport 5432; timeout 1m; size 12; l3proto ip; }
	ct expectation names6 { protocol udp; dport 5432; timeout 1m; size 12; l3proto ip6; }
	chain expects {
		meta nfproto ipv4 tcp dport 80 ct expectation set "web4"
		meta nfproto ipv6 tcp dport 80 ct expectation set "web6"
		meta nfproto ipv4 tcp dport 443 ct expectation set "open4"
		meta nfproto ipv6 tcp dport 443 ct expectation set "open6"
		meta nfproto ipv4 udp dport 53 ct expectation set "names4"
		meta nfproto ipv6 udp dport 53 ct expectation set "names6"
	}
	chain seen {
		type filter hook prerouting priority -150;
		meta nfproto ipv4 ct state related tcp dport 8080 counter comment "web4"
		meta nfproto ipv6 ct state related tcp dport 8080 counter comment "web6"
		meta nfproto ipv4 ct state related tcp dport 9000 counter comment "open4"
		meta nfproto ipv6 ct state related tcp dport 9000 counter comment "open6"
		meta nfproto ipv4 ct state related udp dport 5432 counter comment "names4"
		meta nfproto ipv6 ct state related udp dport 5432 counter comment "names6"
	}
	chain out { type filter hook output priority 0; ct state new jump expects; }
	chain through { type filter hook forward priority 0; ct state new jump expects; }
}`

// What a foreign chain expects is asked by the policy's rules as it begins: such a
// chain cannot open what the policy closes, nor close what it opens.
func TestRelatedIsAskedByTheRules(t *testing.T) {
	for _, way := range []struct{ name, policy, from string }{
		{"input", "input: { default: drop, rules: [reject smtp, allow tcp/9000] }\noutput: { default: drop, rules: [allow tcp/80, allow tcp/443, allow udp/53] }\n", "host"},
		{"forward", "zones: { lan: { interfaces: [lan0] } }\nforward: { default: drop, rules: [allow any in lan, reject smtp, allow tcp/9000] }\noutput: { default: drop }\n", "inside"},
	} {
		t.Run(way.name, func(t *testing.T) {
			c := newTown(t)
			c.host.Nft(expectations)
			apply(t, c.host, way.policy)
			c.try(t, strings.ReplaceAll(`
				PLACE > stranger tcp/80  = answered
				PLACE > stranger tcp/443 = answered
				PLACE > stranger udp/53  = answered
			`, "PLACE", way.from), false)
			// The resets of what is rejected pass an output that is closed, for they belong
			// to the rejected flow.
			c.try(t, strings.ReplaceAll(`
				stranger > PLACE tcp/25   = reset
				stranger > PLACE tcp/8080 = silent
				stranger > PLACE udp/5432 = silent
				stranger > PLACE tcp/9000 = answered
			`, "PLACE", way.from), false)
			listed, err := c.host.Run("nft", "list", "chain", "inet", "other", "seen")
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(listed) {
				if strings.Contains(line, "counter packets 0 ") {
					t.Errorf("nothing was related, so that nothing was tried: %s", line)
				}
			}
		})
	}
}
