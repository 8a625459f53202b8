package kerneltest

import "testing"

// What words do to each other: each case was wrong once.
func TestWordsTogether(t *testing.T) {
	runWords(t, []wordTest{
		{
			name: "a section's own rules come before published rules of the other",
			policy: sides + `
input:
  default: drop
  rules:
    - allow published tcp/8080 from 203.0.113.0/24
forward:
  default: drop
  rules:
    - drop any from 203.0.113.8
nat:
  - redirect tcp/8080 in wan to 10.20.0.5:80
`,
			tries: `
				office > host tcp4/8080  = answered as office
				office2 > host tcp4/8080 = silent
			`,
		},
		{
			name: "what bypasses tracking answers where input is left out and output closed",
			policy: `
tracking: { bypass: [http, dns] }
output:
  default: drop
`,
			tries: `
				stranger > host tcp/80 = answered
				stranger > host udp/53 = answered
				stranger > host tcp/22 = answered
				host > outside tcp/80  = silent
			`,
		},
		{
			name: "what bypasses tracking answers where input allows by default and output is closed",
			policy: `
sets: { office: [203.0.113.0/24, "2001:db8:77::/48"] }
tracking: { bypass: [http] }
input:
  default: allow
  rules:
    - drop http from office
output:
  default: drop
`,
			tries: `
				stranger > host tcp/80 = answered
				office > host tcp/80   = silent
			`,
		},
		{
			name: "reject over a stateless map answers by the outer address",
			policy: sides + `
forward:
  default: reject
  rules:
    - allow tcp/80 to 10.20.0.5
output:
  default: drop
nat:
  - map 198.51.100.32/28 to 10.20.0.0/28 stateless
`,
			tries: `
				stranger > mapped tcp4/80 = answered as stranger
				stranger > mapped tcp4/22 = reset
			`,
		},
		{
			name: "a ban of an inner address holds over a stateless map",
			policy: sides + `
ban: [10.20.0.5]
nat:
  - map 198.51.100.32/28 to 10.20.0.0/28 stateless
`,
			tries: `
				stranger > mapped tcp4/80 = silent
			`,
			after: func(t *testing.T, c *town) {
				if n := received(t, c.inside, "tcp"); n != 0 {
					t.Errorf("the banned machine received %d segments", n)
				}
			},
		},
		{
			name: "a map leaves the host's own packets alone",
			policy: sides + `
nat:
  - map 198.51.100.32/28 to 10.20.0.0/28
`,
			tries: `
				gateway > inside tcp4/80  = answered as gateway
				stranger > mapped tcp4/80 = answered as stranger
				inside > stranger tcp4/80 = answered as mapped
			`,
		},
	})
}
