package check_test

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/prove/check"
	"sluice/internal/system/host"
)

// facts is a small host: one way out, a bridge with a port, somebody logged in.
func facts() host.Facts {
	prefix := netip.MustParsePrefix
	return host.Facts{
		Known: true,
		Interfaces: []host.Interface{
			{Name: "br0", Index: 3, Kind: "bridge", Up: true, Addresses: []netip.Prefix{prefix("10.20.0.1/16")}},
			{Name: "eth0", Index: 2, Kind: "device", Up: true, Addresses: []netip.Prefix{prefix("198.51.100.1/24"), prefix("2001:db8::1/64")}},
			{Name: "lo", Index: 1, Kind: "device", Up: true, Addresses: []netip.Prefix{prefix("127.0.0.1/8"), prefix("::1/128")}},
			{Name: "tap0", Index: 4, Kind: "tun", Up: true, Master: "br0"},
		},
		DefaultRoute:  []string{"eth0"},
		Local:         []netip.Prefix{prefix("127.0.0.0/8"), prefix("198.51.100.1/32"), prefix("198.51.100.200/32"), prefix("10.20.0.1/32"), prefix("2001:db8::1/128")},
		EphemeralFrom: 32768, EphemeralTo: 60999,
		Resolvers:  []netip.Addr{netip.MustParseAddr("8.8.8.8")},
		SSHClients: []host.SSHClient{{Remote: netip.MustParseAddrPort("203.0.113.9:50000"), Local: netip.MustParseAddrPort("198.51.100.1:22")}},
	}
}

// lists serves what a test says instead of downloads.
type lists map[string]string

func (l lists) Open(url string, _ time.Duration) (io.ReadCloser, string, error) {
	text, ok := l[url]
	if !ok {
		return nil, "", fmt.Errorf("no copy of %s", url)
	}
	return io.NopCloser(strings.NewReader(text)), url, nil
}

type testCase struct {
	name   string
	policy string // without its first line
	facts  func(*host.Facts)
	want   []string // "LINE SEVERITY CODE: a part of the message", all findings
}

// run resolves a policy and checks it.
func run(t *testing.T, c testCase) []check.Finding {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"empty.txt": "# nobody yet\n", "v4.txt": "192.0.2.1\n192.0.2.2\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := policy.LoadData(filepath.Join(dir, "policy.yaml"), []byte("version: 1\n"+strings.TrimPrefix(c.policy, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	f := facts()
	if c.facts != nil {
		c.facts(&f)
	}
	r, err := resolve.Resolve(p, resolve.Options{
		Facts: f,
		Lists: lists{"https://lists.example.net/a.txt": "192.0.2.0/24\n", "https://lists.example.net/none.txt": "\n"},
		User: func(name string) (uint32, error) {
			return map[string]uint32{"postfix": 101, "nobody": 65534}[name], nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return check.Run(r, f)
}

func testCases(t *testing.T, cases []testCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			found := run(t, c)
			var got []string
			for i, f := range found {
				line := fmt.Sprintf("%d %s %s", f.Pos.Line, f.Severity, f.Code)
				if i < len(c.want) {
					if _, part, ok := strings.Cut(c.want[i], ": "); ok {
						if strings.Contains(f.Message, part) {
							line += ": " + part
						} else {
							line += ": " + f.Message
						}
					}
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
				for _, f := range found {
					t.Log(f)
				}
			}
		})
	}
}

func TestHiddenRules(t *testing.T) {
	testCases(t, []testCase{
		{name: "one rule hides", policy: `
input:
  default: drop
  rules:
    - allow any from 203.0.113.0/24
    - drop tcp/25 from 203.0.113.7
`, want: []string{`6 error hidden-rule: "allow any from 203.0.113.0/24" on line 5 decides all of its packets`}},
		{name: "the same addresses and more do not hide", policy: `
input:
  default: drop
  rules:
    - drop tcp/25 from 203.0.113.7
    - allow any from 203.0.113.0/24
    - allow tcp/25
`},
		{name: "two halves hide together", policy: `
input:
  default: drop
  rules:
    - allow tcp/80 from 203.0.113.0/25
    - allow udp/53
    - drop tcp from 203.0.113.128/25
    - reject tcp/80 from 203.0.113.0/24
`, want: []string{`8 error hidden-rule: the rules on lines 5 and 7 together decide all of its packets`}},
		{name: "one of two halves does not", policy: `
input:
  default: drop
  rules:
    - allow tcp/80 from 203.0.113.0/25
    - reject tcp/80 from 203.0.113.0/24
`},
		{name: "both families hide what has none", policy: `
input:
  default: drop
  rules:
    - drop tcp/80 ipv4
    - drop tcp/80 ipv6
    - allow tcp/80
`, want: []string{`7 error hidden-rule: lines 5 and 6 together`}},
		{name: "one family does not", policy: `
input:
  default: drop
  rules:
    - drop tcp/80 ipv6
    - allow tcp/80
`},
		{name: "a limit lets the rest go on", policy: `
input:
  default: drop
  rules:
    - allow ssh limit 10/minute per source
    - allow ssh limit 6/30s per source then ban 10m
    - allow http max 20 connections per source
    - allow [ssh, http] from 203.0.113.0/24
`},
		{name: "not and its opposite", policy: `
input:
  default: drop
  rules:
    - drop any from not 203.0.113.0/24
    - allow ssh from 203.0.113.0/24
    - allow http from 198.51.100.0/24
`, want: []string{`7 error hidden-rule: line 5`}},
		{name: "ports of a range", policy: `
services:
  low: tcp/1-1023
  web: [tcp/80, tcp/443, udp/443]
input:
  default: drop
  rules:
    - allow low
    - allow [http, https]
    - allow web
    - allow udp/443
`, want: []string{`9 error hidden-rule: "allow low"`, `11 error hidden-rule: "allow web"`}},
		{name: "zones by interface", policy: `
zones:
  wan: {interfaces: [eth0]}
  vms: {interfaces: [br0, "tun*"]}
  one: {interfaces: [tun7]}
forward:
  default: drop
  rules:
    - allow any from vms to wan
    - allow any in one out wan
    - allow any in vms
    - allow any from wan to vms
`, facts: func(f *host.Facts) {
			f.Interfaces = append(f.Interfaces, host.Interface{Name: "tun7", Index: 9})
		}, want: []string{`10 error hidden-rule: "allow any from vms to wan" on line 9`}},
		{name: "a zone with networks is both at once", policy: `
zones:
  vms: {interfaces: [br0], networks: [10.20.0.0/16]}
forward:
  default: drop
  rules:
    - allow any from vms
    - allow any from 10.20.0.7
    - allow any in vms from 10.20.0.7
`, want: []string{`9 error hidden-rule: line 7`}},
		{name: "users", policy: `
output:
  default: allow
  rules:
    - allow smtp by user postfix
    - reject smtp
    - drop smtp by user nobody
    - allow submission by user postfix
    - reject submission by user nobody
`, want: []string{`7 error hidden-rule: "reject smtp" on line 6`}},
		{name: "published has ports of its own", policy: `
input:
  default: drop
  rules:
    - allow tcp/8080
    - allow published tcp/8080 from 203.0.113.0/24
    - drop published tcp/8080 from 203.0.113.7
`, want: []string{`7 error hidden-rule: line 6`}},
		{name: "published rules of input come behind those of forward", policy: `
input:
  default: drop
  rules:
    - allow published any
forward:
  default: drop
  rules:
    - allow published tcp/8080
    - allow tcp/8080
`},
		{name: "a published rule that forward still asks", policy: `
input:
  default: drop
  rules:
    - drop any from 203.0.113.0/24
    - allow published tcp/80 from 203.0.113.7
forward:
  default: drop
`},
		{name: "a published rule that nothing asks", policy: `
input:
  default: drop
  rules:
    - drop any from 203.0.113.0/24
    - allow published tcp/80 from 203.0.113.7
`, want: []string{`6 error hidden-rule: line 5`}},
		{name: "a published rule that is hidden in both", policy: `
input:
  default: drop
  rules:
    - drop any from 203.0.113.0/24
    - allow published tcp/80 from 203.0.113.7
forward:
  default: drop
  rules:
    - allow any
`, want: []string{`6 error hidden-rule: line 5`}},
		{name: "a rule that still decides on answers", policy: `
tracking: {bypass: [http]}
input:
  default: drop
  rules:
    - allow tcp from 203.0.113.0/24
    - allow http from 203.0.113.7
    - allow ssh from 203.0.113.7
    - allow tcp/80 from 203.0.113.7
`, want: []string{`8 error hidden-rule: line 6`, `9 error hidden-rule: line 6`}},
		{name: "any after all protocols but one", policy: `
input:
  default: drop
  rules:
    - allow tcp
    - allow any
    - allow icmp
    - allow proto/47
`, want: []string{`7 error hidden-rule: line 6`, `8 error hidden-rule: line 6`}},
		{name: "clamp decides nothing", policy: `
zones:
  wan: {interfaces: [default-route]}
forward:
  default: drop
  rules:
    - clamp mss to wan
    - allow any to wan
`},
		{name: "a downloaded list hides for now", policy: `
sets:
  live: {url: "https://lists.example.net/a.txt"}
input:
  default: drop
  rules:
    - allow ssh from live
    - allow ssh from 192.0.2.7
`, want: []string{`8 warning hidden-rule: with the current lists`}},
		{name: "apart by family", policy: `
sets:
  four: [192.0.2.0/24]
  six: ["2001:db8::/32"]
forward:
  default: drop
  rules:
    - allow any from four to six
`, want: []string{`8 error never-matches: "from" and "to" at once`}},
		{name: "two zones that no packet comes from at once", policy: `
zones:
  wan: {interfaces: [eth0]}
  vms: {interfaces: [br0]}
forward:
  default: drop
  rules:
    - allow any from vms in wan
`, want: []string{`8 error never-matches: "from" and "in" at once`}},
		{name: "rules with an end, of which one is past", policy: `
input:
  default: drop
  rules:
    - allow ssh until 2020-01-31T18:00:00Z
    - allow ssh until 2100-01-31T18:00:00Z
    - allow ssh from 192.0.2.7
    - allow ssh
`, want: []string{`5 warning ended-rule: expired at 2020-01-31T18:00:00Z`}},
		{name: "errors pass before any rule", policy: `
input:
  default: drop
  rules:
    - drop icmp destination-unreachable
    - allow icmp time-exceeded
    - allow icmp echo-request
    - allow icmp
`, want: []string{`5 error always-passes`, `6 warning always-passes`}},
		{name: "loopback is allowed before any rule", policy: `
zones:
  self: {interfaces: [lo]}
input:
  default: drop
  rules:
    - drop any in self
`, want: []string{`7 error never-matches: matches "in"`}},
		{name: "banned before any rule", policy: `
sets:
  bad: [192.0.2.0/24]
  spared: [192.0.2.128/25]
ban: [bad]
never-ban: [spared]
input:
  default: drop
  rules:
    - allow ssh from 192.0.2.7
    - allow ssh from 192.0.2.129
    - allow http from 192.0.2.0/24
`, want: []string{`5 remark never-banned`, `10 error banned-rule`}},
		{name: "bans of flows from this host", policy: `
sets:
  bad: [192.0.2.0/24]
ban: bad
output:
  default: allow
  rules:
    - reject smtp to 192.0.2.1
    - reject smtp from 198.51.100.1
`, want: []string{`8 error banned-rule`}},
	})
}
