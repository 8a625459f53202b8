package kerneltest

import (
	"testing"

	"sluice/internal/lab/testnet"
)

// TestBanByLimitSparesFlows: a ban by a limit holds for what begins a flow. What
// lives goes on, whoever began it, over TCP and UDP.
func TestBanByLimitSparesFlows(t *testing.T) {
	runWords(t, []wordTest{{
		name: "flows that live go on, none begins",
		policy: `
input:
  default: drop
  rules:
    - allow ssh limit 2/hour per source then ban 10m
    - allow http
    - allow icmp echo-request
output: { default: allow }
`,
		tries: `host > host tcp/80 = answered`,
		after: func(t *testing.T, c *town) {
			for _, v6 := range []bool{false, true} {
				in, out := c.open(t, "stranger", "host", 80, v6, "before"), c.open(t, "host", "stranger", 80, v6, "before")
				for range 3 {
					c.once(attempt{from: "stranger", to: "host", proto: "tcp", port: 22, v6: v6}, want{outcome: testnet.Silent})
				}
				for _, a := range []attempt{
					{from: "stranger", to: "host", proto: "tcp", port: 80, v6: v6},
					{from: "stranger", to: "host", proto: "ping", v6: v6},
					{from: "host", to: "stranger", proto: "tcp", port: 80, v6: v6},
				} {
					if r := c.once(a, want{outcome: testnet.Silent}); r.Outcome == testnet.Answered {
						t.Errorf("IPv6 %t: %s to %s over %s begins a flow under a ban", v6, a.from, a.to, a.proto)
					}
				}
				for name, conn := range map[string]*testnet.Conn{"from": in, "to": out} {
					if r := conn.Exchange("after", enough); r.Outcome != testnet.Answered {
						t.Errorf("IPv6 %t: a connection %s a source that a limit has banned since: %v", v6, name, r)
					}
				}
			}
		},
	}})
}
