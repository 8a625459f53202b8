package check_test

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/prove/check"
	"sluice/internal/prove/reference"
	"sluice/internal/system/host"
)

// manualHost is the host that the manual's examples are about.
func manualHost() host.Facts {
	f := facts()
	address, prefix := netip.MustParseAddr, netip.MustParsePrefix
	for i := range f.Interfaces {
		f.Interfaces[i].MTU = 1500
	}
	f.Interfaces = append(f.Interfaces, host.Interface{
		Name: "wg0", Index: 5, Kind: "wireguard", Up: true, MTU: 1420, Addresses: []netip.Prefix{prefix("10.30.0.1/24")},
	})
	f.Interfaces = append(f.Interfaces, host.Interface{
		Name: "docker0", Index: 6, Kind: "bridge", Up: true, MTU: 1500, Addresses: []netip.Prefix{prefix("172.17.0.1/16")},
	})
	f.Local = append(f.Local, prefix("10.30.0.1/32"), prefix("172.17.0.1/32"))
	f.Forwarding4, f.Forwarding6 = true, true
	f.Resolvers = []netip.Addr{address("192.0.2.53")}
	f.Gateways = []netip.Addr{address("198.51.100.254")}
	f.Servers = []host.Server{
		{Role: host.Mirror, Name: "deb.example.net", Addresses: []netip.Addr{address("192.0.2.80")}, Protocol: "tcp", Port: 443, File: "/etc/apt/sources.list"},
		{Role: host.TimeServer, Name: "192.0.2.123", Addresses: []netip.Addr{address("192.0.2.123")}, Protocol: "udp", Port: 123, FromPort: 123, File: "/etc/ntp.conf"},
	}
	f.Published = []host.Published{{Protocol: "tcp", Port: 8080, To: netip.MustParseAddrPort("172.17.0.2:80")}}
	return f
}

// flushing is another firewall that starts with the host.
var flushing = []host.Firewall{{Unit: "nftables.service", Flushes: true, Disable: "systemctl disable nftables.service"}}

// lintText lints a policy without its first line.
func lintText(t *testing.T, text string, f host.Facts) (check.Report, *resolve.Resolved) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"empty.txt": "# nobody yet\n", "v4.txt": "192.0.2.1\n192.0.2.2\n", "doubles.txt": "192.0.2.0/24\n# remark\n192.0.2.7 # in it\n198.51.100.7\n198.51.100.7\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := policy.LoadData(filepath.Join(dir, "policy.yaml"), []byte("version: 1\n"+strings.TrimPrefix(text, "\n")))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	r, err := resolve.Resolve(p, resolve.Options{
		Facts: f,
		Geo:   func() (*geo.Database, error) { return geo.Open(dir) },
		Lists: lists{"https://lists.example.net/a.txt": "192.0.2.0/24\n"},
		User:  func(string) (uint32, error) { return 101, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return check.Lint(r, f, check.Options{Open: func(name string) (io.ReadCloser, error) { return os.Open(name) }}), r
}

func codes(r check.Report) (out []check.Code) {
	for _, f := range r.Findings {
		out = append(out, f.Code)
	}
	return out
}

// testLint compares all findings but those of some codes, which the host of the
// manual has with any policy.
func testLint(t *testing.T, cases []testCase) {
	t.Helper()
	quiet := []check.Code{check.NotPoliced, check.PublishedClosed, check.InputPublished, check.HostNeeds}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := manualHost()
			if c.facts != nil {
				c.facts(&f)
			}
			report, r := lintText(t, c.policy, f)
			var got []string
			for _, f := range report.Findings {
				if c.facts == nil && slices.Contains(quiet, f.Code) || f.Code == check.NoClamp && !strings.Contains(c.name, "small packets") {
					continue
				}
				got = append(got, fmt.Sprintf("%d %s %s: %s", f.Pos.Line, f.Severity, f.Code, f.Message))
				judgeWitness(t, r, f)
			}
			if len(got) != len(c.want) {
				t.Fatalf("findings (-want +got):\n%s", cmp.Diff(c.want, got))
			}
			for i, want := range c.want {
				head, part, _ := strings.Cut(want, ": ")
				if !strings.HasPrefix(got[i], head+": ") || !strings.Contains(got[i], part) {
					t.Errorf("findings (-want +got):\n%s", cmp.Diff(c.want, got))
				}
			}
		})
	}
}

// judgeWitness asks the reference, which knows nothing of how findings are made,
// whether a packet is what the finding says.
func judgeWitness(t *testing.T, r *resolve.Resolved, f check.Finding) {
	t.Helper()
	if f.Witness == nil {
		return
	}
	got := reference.Judge(r, f.Witness.Packet, f.Witness.Hook)
	wrong := false
	switch f.Code {
	case check.HiddenPart:
		wrong = !slices.ContainsFunc(f.Related, func(r check.Related) bool { return r.Text == got.Why }) && !strings.HasPrefix(got.Why, "ban")
	case check.RedundantRule:
		wrong = !strings.HasPrefix(f.Line, " ") || !strings.Contains(f.Line, strings.Fields(got.Why)[0])
	case check.OpenManagement, check.IPv6Open, check.EveryIPv4, check.NoClamp:
		wrong = got.Action != policy.Allow
	case check.RepliesCut, check.RequestsCut, check.PublishedClosed, check.RedirectClosed, check.BypassUnused:
		wrong = got.Action == policy.Allow || strings.HasPrefix(got.Why, "ban")
	case check.BanServer:
		wrong = !strings.HasPrefix(got.Why, "ban")
	case check.ForgedBan:
		wrong = !strings.Contains(got.Why, "then ban")
	}
	if wrong {
		t.Errorf("%s: %s gets %s by %q", f.Code, f.Witness.Text(), got.Action, got.Why)
	}
}

func TestLintRules(t *testing.T) {
	testLint(t, []testCase{
		{name: "words without effect", policy: `
input:
  default: drop
  rules:
    - drop tcp/80
    - allow [http, https] from [192.0.2.0/24, 203.0.113.0/24]
`, want: []string{`6 warning hidden-part: http has no effect in this rule: "drop tcp/80" on line 5`}},
		{name: "one address of a list, by a rule that does the same", policy: `
input:
  default: drop
  rules:
    - allow any from 192.0.2.7
    - allow http from [192.0.2.7, 203.0.113.0/24]
`, want: []string{
			`5 warning open-management`, `6 remark hidden-part: 192.0.2.7 has no effect`,
		}[1:]},
		{name: "a part of a service", policy: `
input:
  default: drop
  rules:
    - drop udp
    - allow dns
`, want: []string{`5 remark redundant-rule`, `6 warning hidden-part: udp/53 of dns has no effect`}[1:]},
		{name: "a part that is banned", policy: `
ban: [192.0.2.64/28]
input:
  default: drop
  rules:
    - allow http from [192.0.2.64/30, 203.0.113.0/24]
`, want: []string{`6 warning hidden-part: 192.0.2.64/30 has no effect in this rule: all of its packets are banned`}},
		{name: "two ranges that cross", policy: `
input:
  default: drop
  rules:
    - drop tcp/1000-2000
    - allow tcp/1500-3000
`, want: []string{
			`6 remark hidden-part: decides tcp/1500-2000; what is left is tcp/2001-3000`,
			`6 warning open-management`,
		}},
		{name: "a part of both", policy: `
ban: [192.0.2.128/25]
input:
  default: drop
  rules:
    - drop tcp/12000-12550
    - allow tcp/12500-12600 from [192.0.2.0/24, 203.0.113.0/24]
`, want: []string{`7 remark hidden-part: decides tcp/12500-12550; what is left is tcp/12551-12600`}},
		{name: "ranges that cross in one family", policy: `
input:
  default: drop
  rules:
    - drop tcp/12000-13000 ipv6
    - allow tcp/12500-12600
`},
		{name: "ranges that cross in one family, and are named", policy: `
input:
  default: drop
  rules:
    - drop tcp/12000-12550 ipv6
    - allow tcp/12500-12600
`, want: []string{`6 remark hidden-part: decides tcp/12500-12550 over IPv6; what is left is all over IPv4; tcp/12551-12600 over IPv6`}},
		{name: "exceptions are no findings", policy: `
sets:
  some: [192.0.2.0/24, "2001:db8:bad::/48"]
input:
  default: drop
  rules:
    - drop http from 203.0.113.7
    - drop any from some
    - allow http from 203.0.113.0/24
    - allow icmp
`},
		{name: "icmp errors in vain", policy: `
input:
  default: drop
  rules:
    - allow http
    - reject icmp
`},
		{name: "redundant by a rule below, by the default, and not", policy: `
input:
  default: drop
  rules:
    - allow http from 192.0.2.7
    - drop http from 203.0.113.9
    - allow http
    - drop tcp/8080
    - reject tcp/113
    - drop tcp/8081 log
    - allow tcp/8082 limit 1/second
`, want: []string{`5 remark redundant-rule: "allow http" on line 7`, `8 remark redundant-rule: by the default`}},
		{name: "a log is an effect", policy: `
input:
  default: drop log "x"
  rules:
    - drop tcp/8080
`},
		{name: "what changes is not in", policy: `
sets:
  europe: {continents: [EU]}
  a: {url: "https://lists.example.net/a.txt"}
input:
  default: drop
  rules:
    - allow http from 192.0.2.0/25
    - allow http from europe
    - allow http from a
`},
		{name: "the mirror of a bypassed service", policy: `
tracking:
  bypass: [http]
input:
  default: drop
  rules:
    - allow http from 203.0.113.0/24
    - allow any from 203.0.113.0/24
`, want: []string{}},
		{name: "published, and forward does something else with the rest", policy: `
input:
  default: drop
  rules:
    - drop published http from 203.0.113.7
forward:
  default: reject
`},
		{name: "published in both sections and the same in both", policy: `
input:
  default: drop
  rules:
    - allow published http from 203.0.113.7
    - allow published http
forward:
  default: drop
`, want: []string{`5 remark redundant-rule: "allow published http" on line 6`}},
	})
}

func TestLintNames(t *testing.T) {
	testLint(t, []testCase{
		{name: "entries of sets", facts: func(f *host.Facts) { *f = host.Facts{} }, policy: `
sets:
  a: [192.0.2.0/24, 192.0.2.7, 198.51.100.7, 198.51.100.7, "2001:db8::/32", "2001:db8:1::/48"]
  b: {addresses: [203.0.113.0/24, 192.0.2.64/26], except: [a]}
  c: {union: [a, d]}
  d: [192.0.2.128/25]
  e: {file: doubles.txt}
  f: {addresses: [198.51.100.0/25], except: [d]}
ban: [c, e, b, f]
input:
  default: drop
`, want: []string{
			`3 remark redundant-element: 192.0.2.7 is covered by 192.0.2.0/24`, `3 remark redundant-element: 198.51.100.7 is in set "a" twice`,
			`3 remark redundant-element: 2001:db8:1::/48 is covered by 2001:db8::/32`,
			`4 remark redundant-element: the exceptions of set "b" remove all of 192.0.2.64/26`,
			`5 remark redundant-element: d adds nothing to this union: a covers all of it`,
			`7 remark redundant-element: 2 of 4 entries of doubles.txt are covered by others: 192.0.2.7 on line 3 by 192.0.2.0/24 on line 1`,
			`8 remark redundant-element: the exception d removes nothing`,
			`9 remark redundant-element: e adds nothing to this list`,
		}},
		{name: "lists in rules and of services", facts: func(f *host.Facts) { *f = host.Facts{} }, policy: `
sets:
  office: [203.0.113.0/24]
  europe: {continents: [EU]}
  italy: {countries: [IT]}
services:
  web: [http, https]
input:
  default: drop
  rules:
    - allow [web, tcp/80] from [office, 203.0.113.7]
    - allow smtp from [europe, italy]
    - allow imaps from [europe, office]
`, want: []string{
			`11 remark redundant-element: tcp/80 adds nothing`, `11 remark redundant-element: 203.0.113.7 adds nothing to this list: office covers`,
			`12 remark redundant-element: italy adds nothing to this list: europe covers`,
		}},
		{name: "names", facts: func(f *host.Facts) { *f = host.Facts{} }, policy: `
zones:
  lan: {networks: [10.20.0.0/16]}
  dmz: {networks: [10.30.0.0/16]}
sets:
  a: [192.0.2.0/24]
  b: {union: [a]}
  c: [198.51.100.0/24]
  d: {union: [c]}
services:
  x: tcp/1000
  y: [x, tcp/1001]
  z: tcp/1002
input:
  default: drop
  rules:
    - allow y from d
    - allow dns from lan
`, want: []string{
			`4 remark unused-name: zone "dmz"`, `6 remark unused-name: set "a"`, `7 remark unused-name: set "b"`, `13 remark unused-name: service "z"`,
		}},
	})
}

func TestLintBans(t *testing.T) {
	testLint(t, []testCase{
		{name: "a neighbour is no network", policy: `
ban: [10.20.0.7, 198.51.100.77]
input:
  default: drop
`},
		{name: "networks and the router", policy: `
zones:
  lan: {networks: [172.30.0.0/16]}
ban: [10.0.0.0/8, 198.51.100.240/28, 172.24.0.0/13]
input:
  default: drop
  rules:
    - allow dns from 172.31.0.0/16
`, want: []string{
			`3 remark unused-name`, `4 warning ban-network: 10.20.0.0/16 of br0 and 10.30.0.0/24 of wg0`, `4 warning ban-own`, `4 warning ban-router: 198.51.100.254`,
			`4 warning ban-network: zone "lan"`, `8 error banned-rule`,
		}},
		{name: "spared", policy: `
never-ban: [10.20.0.0/16, 10.30.0.1, 198.51.100.254]
ban: [10.0.0.0/8, 198.51.100.240/28]
input:
  default: drop
`, want: []string{`3 remark never-banned`, `3 remark never-banned`}},
	})
}

// A comment takes a finding out, and says why; what it cannot allow is told.
func TestLintComments(t *testing.T) {
	report, _ := lintText(t, `
input:
  default: drop
  rules:
    # lint: allow open-management hotels
    - allow ssh
    - allow redis # lint: allow open-management behind a tunnel
    - allow tcp/3306 # lint: allow hidden-part never found here
    - drop http # lint: allow nonsense x
    - drop https # lint: allow redundant-rule
    - drop ssh # lint: allow hidden-rule an error stays
    - drop tcp/99 # lint allow is not the word
    - drop tcp/98 # lint: ignore that
`, host.Facts{})
	var got []string
	for _, f := range report.Findings {
		if f.Code != check.RedundantRule {
			got = append(got, fmt.Sprintf("%d:%d %s %s", f.Pos.Line, f.Pos.Column, f.Severity, f.Code))
		}
	}
	want := []string{
		"8:13 warning open-management", "8:22 remark lint-comment", "9:17 error lint-comment", "10:18 error lint-comment",
		"11:7 error hidden-rule", "11:16 error lint-comment", "13:19 error lint-comment",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("findings (-want +got):\n%s", d)
	}
	var silenced []string
	for _, s := range report.Silenced {
		silenced = append(silenced, fmt.Sprintf("%d %s: %s", s.Finding.Pos.Line, s.Finding.Code, s.Reason))
	}
	if d := cmp.Diff([]string{"6 open-management: hotels", "7 open-management: behind a tunnel"}, silenced); d != "" {
		t.Errorf("silenced (-want +got):\n%s", d)
	}
}
