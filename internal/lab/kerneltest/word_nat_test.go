package kerneltest

import (
	"testing"

	"sluice/internal/lab/testnet"
)

const sides = `
zones:
  wan: { interfaces: [default-route] }
  lan: { interfaces: [lan0], networks: [10.20.0.0/24, "2001:db8:20::/64"] }
`

func TestWordsOfNAT(t *testing.T) {
	runWords(t, []wordTest{
		{
			name: "masquerade, one family and both",
			policy: sides + `
nat:
  - masquerade from lan out wan ipv4
  - masquerade from [10.99.0.0/24, 2001:db8:aaaa::/64] out wan
`,
			tries: `
				inside > stranger tcp4/80    = answered as host
				inside > stranger tcp6/80    = answered as inside
				inside > stranger udp4/53    = answered as host
				elsewhere > stranger udp6/53 = answered as host
				elsewhere > stranger tcp4/80 = answered as host
				inside > stranger ping       = answered
				stranger > host tcp/80       = answered as stranger
				host > stranger tcp/80       = answered as host
			`,
		},
		{
			name: "masquerade as an address",
			policy: sides + `
nat:
  - masquerade from lan out wan as 198.51.100.9
  - masquerade from lan out wan as 2001:db8:100::9
`,
			tries: `
				inside > stranger tcp/80 = answered as second
				inside > stranger udp/53 = answered as second
			`,
		},
		{
			// What the host sends comes in by no interface, so it is not from the zone.
			name: "masquerade from not a zone",
			policy: sides + `
nat:
  - masquerade from not lan out wan as 198.51.100.9
  - masquerade from not lan out wan as 2001:db8:100::9
`,
			tries: `
				inside > stranger tcp/80 = answered as inside
				host > stranger tcp/80   = answered as second
			`,
		},
		{
			name: "NAT permits nothing",
			policy: sides + `
forward:
  default: drop
  rules:
    - allow tcp from lan to wan
    - allow tcp/80 to 10.20.0.5
nat:
  - masquerade from lan out wan ipv4
  - redirect tcp/8080 in wan to 10.20.0.5:80
  - redirect tcp/9000 in wan to 10.20.0.5:443
`,
			tries: `
				inside > stranger tcp4/80 = answered as host
				inside > stranger udp4/53 = silent
				stranger > host tcp4/8080 = answered as stranger
				stranger > host tcp4/9000 = silent
			`,
		},
		{
			name: "redirect in a zone: its own addresses, from any side, hairpin",
			policy: sides + `
input: { default: drop }
nat:
  - redirect tcp/8080 in wan to 10.20.0.5:80
  - redirect udp/9000 in wan to [2001:db8:20::5]:53
`,
			tries: `
				stranger > host tcp4/8080      = answered as stranger
				stranger > second tcp4/8080    = answered as stranger
				stranger > host tcp6/8080      = silent
				inside2 > host tcp4/8080       = answered as gateway
				inside > host tcp4/8080        = answered as gateway
				stranger > host udp6/9000      = answered as stranger
				inside > gateway tcp4/8080     = silent
				stranger > inside tcp4/8080    = answered
				host > host tcp4/8080          = answered
			`,
		},
		{
			name: "redirect on an address, to a port of this host, keeping the port, for a list",
			policy: sides + `
nat:
  - redirect tcp/2222 in wan to :22
  - redirect [tcp/443, udp/443] on 198.51.100.9 to 10.20.0.6
  - redirect tcp/9001 on 2001:db8:100::9 to [2001:db8:20::6]:9000
`,
			tries: `
				stranger > host tcp/2222      = answered as stranger
				stranger > second tcp/2222    = answered as stranger
				stranger > second tcp4/443    = answered as stranger
				stranger > second udp4/443    = answered as stranger
				stranger > second tcp6/9001   = answered as stranger
				stranger > host tcp6/9001     = reset
			`,
			after: func(t *testing.T, c *town) {
				c.inside.Nft("table inet t { chain c { type filter hook input priority 0; ip daddr 10.20.0.6 tcp dport 443 drop; }; }")
				c.try(t, `
					stranger > second tcp4/443 = silent
					stranger > host tcp4/443   = answered
				`, false)
			},
		},
		{
			name: "map one to one, both directions",
			policy: sides + `
nat:
  - map 198.51.100.32/28 to 10.20.0.0/28
  - map 2001:db8:100:f::/64 to 2001:db8:20::/64
`,
			tries: `
				stranger > mapped tcp/80   = answered as stranger
				stranger > mapped udp/53   = answered as stranger
				stranger > mapped ping     = answered
				inside > stranger tcp/80   = answered as mapped
				inside > stranger udp/53   = answered as mapped
				inside > stranger ping     = answered
			`,
		},
		{
			// A reset without a connection is invalid to tracking, and output refused it.
			name: "map stateless: who is refused on either side is told so",
			policy: sides + `
output: { default: drop }
forward: { default: reject }
nat:
  - map 198.51.100.32/28 to 10.20.0.0/28 stateless
  - map 2001:db8:100:f::/64 to 2001:db8:20::/64 stateless
`,
			tries: `
				stranger > mapped tcp/80   = reset
				inside > stranger tcp/80   = reset
				inside > stranger udp/53   = unreachable
			`,
		},
		{
			name: "map stateless, both directions, untracked",
			policy: sides + `
nat:
  - map 198.51.100.32/28 to 10.20.0.0/28 stateless
  - map 2001:db8:100:f::/64 to 2001:db8:20::/64 stateless
`,
			tries: `
				stranger > mapped tcp/80   = answered as stranger
				stranger > mapped udp/53   = answered as stranger
				stranger > mapped ping     = answered
				inside > stranger tcp/80   = answered as mapped
				inside > stranger udp/53   = answered as mapped
				inside > stranger ping     = answered
				stranger > host tcp/80     = answered as stranger
			`,
			after: func(t *testing.T, c *town) {
				for _, e := range entries(t, c.host) {
					if mentions(e, place("inside", false)) || mentions(e, place("mapped", false)) || mentions(e, place("inside", true)) || mentions(e, place("mapped", true)) {
						t.Errorf("stateless traffic has an entry: %+v", e)
					}
				}
			},
		},
		{
			name: "map stateless under forward rules",
			policy: sides + `
forward:
  default: drop
  rules:
    - allow tcp/80 to 10.20.0.5
nat:
  - map 198.51.100.32/28 to 10.20.0.0/28 stateless
`,
			tries: `
				stranger > mapped tcp4/80 = answered as stranger
				stranger > mapped tcp4/22 = silent
				stranger > mapped ping4   = silent
				inside > stranger tcp4/80 = silent
			`,
		},
		{
			name: "published: own redirects",
			policy: sides + office + `
input:
  default: drop
  rules:
    - allow published tcp/2222 from office
forward:
  default: drop
  rules:
    - allow published tcp/8080 from office
nat:
  - redirect tcp/8080 in wan to 10.20.0.5:80
  - redirect tcp/2222 in wan to :22
`,
			tries: `
				office > host tcp4/8080   = answered as office
				stranger > host tcp4/8080 = silent
				office > inside tcp/80    = silent
				office > host tcp/2222    = answered
				stranger > host tcp/2222  = silent
				office > host tcp/22      = silent
			`,
		},
		{
			name: "clamp mss",
			policy: sides + `
forward:
  default: drop
  rules:
    - clamp mss from lan to wan
    - allow any from lan to wan
    - allow any from wan to lan
`,
			tries: `inside > stranger tcp/80 = answered`,
			after: func(t *testing.T, c *town) {
				c.host.MustRun("ip", "link", "set", "wan0", "mtu", "1300")
				seen := c.street.Capture()
				for _, v6 := range []bool{false, true} {
					overhead := uint16(40)
					if v6 {
						overhead = 60
					}
					mustSend(t, c.yard, testnet.SYN(at(place("inside", v6), 5000), at(place("stranger", v6), 80), 1460))
					got, ok := seen.Wait(enough, func(s testnet.Seen) bool { return s.Flags == "S" && s.Source.Is6() == v6 && s.SourcePort == 5000 })
					if !ok || got.MSS != 1300-overhead {
						t.Errorf("IPv6 %t: SYN seen %t with MSS %d, want %d", v6, ok, got.MSS, 1300-overhead)
					}
					// The other direction, which the rule does not name, is left alone.
					inside := c.yard.Capture()
					mustSend(t, c.street, testnet.SYN(at(place("stranger", v6), 6000), at(place("inside", v6), 80), 1460))
					got, ok = inside.Wait(enough, func(s testnet.Seen) bool { return s.Flags == "S" && s.SourcePort == 6000 })
					if !ok || got.MSS != 1460 {
						t.Errorf("IPv6 %t: SYN to the lan seen %t with MSS %d, want it untouched", v6, ok, got.MSS)
					}
				}
			},
		},
		{
			name: "accelerate changes no verdict",
			policy: sides + `
forward:
  default: drop
  accelerate: true
  rules:
    - allow tcp from lan to wan
    - allow tcp/80 from wan to lan
nat:
  - masquerade from lan out wan ipv4
`,
			tries: `
				inside > stranger tcp4/80 = answered as host
				inside > stranger tcp6/80 = answered as inside
				stranger > inside tcp/80  = answered
				stranger > inside tcp/443 = silent
				inside > stranger udp/53  = silent
			`,
		},
	})
}
