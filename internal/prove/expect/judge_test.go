package expect_test

import (
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/expect"
	"sluice/internal/prove/query"
	"sluice/internal/system/host"
)

var facts = host.Facts{
	Known: true, DefaultRoute: []string{"eth0"}, Forwarding4: true, Forwarding6: true,
	Interfaces: []host.Interface{
		{Name: "lo", Addresses: prefixes("127.0.0.1/8", "::1/128")},
		{Name: "eth0", Addresses: prefixes("198.51.100.1/24", "2001:db8::1/64")},
		{Name: "lan0", Addresses: prefixes("10.20.0.1/24", "2001:db8:20::1/64")},
	},
	EphemeralFrom: 32768, EphemeralTo: 60999,
	Published: []host.Published{
		{Protocol: "tcp", Port: 9080, To: netip.MustParseAddrPort("10.20.0.6:80")},
		{Protocol: "tcp", Port: 9443, To: netip.MustParseAddrPort("10.20.0.6:443")},
	},
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

var countries = sync.OnceValues(geo.Snapshot)

// resolved reads a policy for the host.
func resolved(t testing.TB, text string) *resolve.Resolved {
	t.Helper()
	p, err := policy.LoadData("p.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	r, err := resolve.Resolve(p, resolve.Options{Facts: facts, Geo: countries, User: func(name string) (uint32, error) {
		if name == "postfix" {
			return 25, nil
		}
		return 1000, nil
	}})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return r
}

// compiled is the program of a policy behind the required passes.
func compiled(t testing.TB, r *resolve.Resolved) *program.Program {
	t.Helper()
	p, err := compile.Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	var without []string
	for _, pass := range optimize.Passes {
		if !pass.Required {
			without = append(without, pass.Name)
		}
	}
	if err := optimize.Run(p, optimize.Options{Without: without}); err != nil {
		t.Fatal(err)
	}
	return p
}

const named = `version: 1
zones:
  wan: { interfaces: [default-route] }
  lan: { interfaces: [lan0], networks: [10.20.0.0/24, "2001:db8:20::/64"] }
sets:
  office: [203.0.113.0/24, "2001:db8:77::/48"]
  banned: [192.0.2.66, "2001:db8:bad::/48"]
  europe: { countries: [IT, SM, VA] }
services:
  web: [tcp/80, tcp/443, udp/443]
`

const server = named + `
ban: [banned]
tracking: { bypass: [http3] }
input:
  default: drop
  rules:
    - allow web from europe
    - allow ssh from office
    - allow smtp limit 3/minute per source then ban 10m
    - reject tcp/113
    - allow ping from office
output:
  default: allow
  rules:
    - allow smtp by user postfix
    - reject smtp
`

const gateway = named + `
input:
  default: drop
  rules:
    - allow ssh from lan
forward:
  default: drop
  rules:
    - allow any from lan to wan
    - allow tcp/5432 from office to 10.20.0.5
    - allow published tcp/8080 from office
    - allow http to 10.20.0.6
nat:
  - masquerade from lan out wan ipv4
  - redirect tcp/8080 in wan to 10.20.0.5:80
  - redirect tcp/8081 in wan to 10.20.0.6:80
  - map 198.51.100.16/28 to 10.20.1.0/28
`

const stateless = named + `
tracking: { bypass: [http3] }
input:
  default: drop
  rules:
    - allow udp/443 from office
    - drop udp/443
output:
  default: reject
  rules:
    - reject radius by user postfix
`

// TestJudge is one line a question: what is expected, and what is said to it: ok,
// or which lines decide otherwise, or what is wrong with the line.
func TestJudge(t *testing.T) {
	for _, c := range []struct{ policy, line, want string }{
		{server, "allow tcp/443 from 2.32.0.1", "ok input"},
		{server, "allow tcp/443 from 8.8.8.8", "drop: default"},
		{server, "drop tcp/443 from 8.8.8.8", "ok input"},
		{server, "drop ssh from not office", "ok input"},
		{server, "deny ssh from not office", "ok input"},
		{server, "reject ssh from not office", "drop: default; drop: banned"},
		{server, "drop ssh from not 203.0.113.0/25", "allow: allow ssh from office"},
		{server, "allow ssh from office", "ok input"},
		{server, "allow ssh from office in wan", "ok input"},
		{server, "allow any from office", "drop: default; reject: reject tcp/113"},
		{server, "drop any from banned", "ok input"},
		{server, "drop any from [banned, office]", "allow: allow ssh from office; allow: allow ping from office; allow: allow smtp limit; reject: reject tcp/113"},
		{server, "allow smtp", "drop: banned"},
		{server, "allow smtp from not banned", "ok input"},
		{server, "reject tcp/113 from not banned", "ok input"},
		{server, "deny any from not [office, europe] state new", "allow: allow smtp limit"},
		{server, "deny [udp, icmp] from not [office, europe]", "ok input"},
		{server, "deny icmp ipv6 from not office", "ok input"},
		{server, "allow [tcp, udp] from 8.8.8.8 state established", "ok input"},
		{server, "allow any from 8.8.8.8 state established", "drop: default"},
		{server, "allow [tcp, udp, sctp] from not banned state established", "ok input"},
		{server, "allow [tcp, udp, sctp] from not banned state related", "drop: default; reject: reject tcp/113"},
		{server, "drop any state invalid", "ok input"},
		{server, "drop any from banned state established", "no packet can match"},
		{server, "allow icmp packet-too-big", "no packet can match"},
		{server, "allow udp/68 from 192.0.2.1 on forward", "drop: ban: banned"},
		{server, "allow udp/68 from 192.0.2.7 to 192.0.2.1", "ok forward"},
		{server, "allow smtp by user postfix", "drop: banned"},
		{server, "allow smtp to not banned by user postfix", "ok output"},
		{server, "reject smtp by user 1000", "drop: banned"},
		{server, "deny smtp by user 1000", "ok output"},
		{server, "deny smtp on output", "allow: allow smtp by user postfix"},
		{server, "allow https on output", "drop: banned"},
		{server, "allow ssh to 198.51.100.1 from office", "ok input"},
		{server, "allow ssh to 198.51.100.9 from office", "ok forward"},
		{server, "allow ssh to 198.51.100.0/24 from office", "end the expectation with \"on input\" or \"on forward\""},
		{server, "allow ssh to 198.51.100.9 from office on input", "no packet can match"},
		{server, "allow ssh from 198.51.100.1", "no packet can match"},

		// What is sent from the port of a service that is not tracked is taken for its answer.
		{stateless, "reject radius by user postfix", "allow: allow udp/443 from office; drop: drop udp/443"},

		{gateway, "allow any in lan out wan from lan", "ok forward"},
		{gateway, "drop any in lan out wan from 10.20.0.0/24", "allow: allow any from lan to wan"},
		{gateway, "drop any in lan out wan from not lan", "allow: allow published tcp/8080; allow: allow tcp/5432 from office to 10.20.0.5; allow: allow http to 10.20.0.6"},
		{gateway, "allow any from lan to wan", "ok forward"},
		{gateway, "drop any from wan to lan", "allow: allow tcp/5432 from office to 10.20.0.5; allow: allow http to 10.20.0.6"},
		{gateway, "allow tcp/5432 from office to 10.20.0.5", "ok forward"},
		{gateway, "drop tcp/5432 from not [office, lan] to 10.20.0.5", "ok forward"},
		{gateway, "drop tcp/5432 to 10.20.0.5 from not office", "allow: allow any from lan to wan"},
		// Whether an address is one of wan's own is the host's to decide, and changes.
		{gateway, "allow tcp/8080 from office in wan ipv4 to 198.51.100.1", "drop: default: drop"},
		{gateway, "drop tcp/8080 from not office in wan", "ok input"},
		{gateway, "allow tcp/8081 in wan to 198.51.100.1", "drop: default: drop"},
		{gateway, "drop tcp/80 from not lan to 198.51.100.16", "ok forward"},
		{gateway, "drop any in wan on input", "allow: allow published tcp/8080 from office; allow: allow http to 10.20.0.6"},
		{gateway, "drop published tcp/9090 from not lan", "nothing was judged"},
		{gateway, "allow published tcp/8080 from office to 198.51.100.1", "ok input"},
		{gateway, "allow published tcp/8080 to 198.51.100.1", "drop: default"},
		{gateway, "drop published tcp/8080 from not [office, lan]", "ok input"},
		{gateway, "allow published tcp/8080 from office on forward", "ok input"},
		{gateway, "drop published tcp/8080 from not [office, lan] on forward", "ok input"},
		{gateway, "allow published tcp/8080 from office on input", "nothing was judged"},
		{gateway, "drop published tcp/8081 from not [office, lan]", "allow: allow http to 10.20.0.6"},
		{gateway, "allow published tcp/8080 from office to 10.20.0.5", "nothing was judged"},
		{gateway, "allow published tcp/9443 from 203.0.113.7", "drop: default"},
		{gateway, "deny published tcp/9443 from not office", "ok input"},
		{gateway, "allow published tcp/9080 from 203.0.113.7", "ok input"},
		{gateway, "allow published tcp/9080 from office on forward", "ok input"},
		{gateway, "allow published tcp/9080 from office to 198.51.100.1", "ok input"},
		{gateway, "allow published tcp/9080 from office to 10.20.0.1", "ok input"},
		{gateway, "deny published tcp/9080 from not office", "allow: allow http to 10.20.0.6"},
		{gateway, "deny published udp/9080 from not office", "nothing was judged"},
	} {
		t.Run(c.line, func(t *testing.T) {
			r := resolved(t, c.policy+"expect:\n  - "+c.line+"\n")
			got := judged(r, compiled(t, r))
			if c.want == "" || !matches(got, c.want) {
				t.Errorf("%s\ngot  %s\nwant %s", c.line, got, c.want)
			}
		})
	}
}

// TestUnknownHost: what nat leads on is none of a host's addresses of which nothing is
// known, as the policy itself takes it.
func TestUnknownHost(t *testing.T) {
	const text = `version: 1
zones: { wan: { interfaces: [eth0] } }
input: { default: allow }
forward: { default: drop }
nat:
  - redirect tcp/8080 in wan to 10.0.0.9:80
  - redirect tcp/8080 in wan to [2001:db8::9]:80
expect:
  - drop published tcp/8080 from 192.0.2.1
`
	p, err := policy.LoadData("p.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := resolve.Resolve(p, resolve.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := judged(r, compiled(t, r)); !strings.HasPrefix(got, "ok ") {
		t.Errorf("got %s", got)
	}
}

func judged(r *resolve.Resolved, p *program.Program) string {
	results, err := expect.Judge(query.Compiled{Resolved: r, Program: p}, countries)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, f := range results[0].Failures {
		what := f.Text
		if what == "" {
			what = f.Why
		}
		out = append(out, string(f.Verdict)+": "+what)
	}
	if results[0].Note != "" {
		return results[0].Note
	}
	if len(out) == 0 {
		return "ok " + string(results[0].Hook)
	}
	return strings.Join(out, "; ")
}

// matches wants each part of want in a part of got of its own.
func matches(got, want string) bool {
	if !strings.Contains(want, ": ") {
		return strings.Contains(got, want)
	}
	g, w := strings.Split(got, "; "), strings.Split(want, "; ")
	if len(g) != len(w) {
		return false
	}
	used := map[int]bool{}
next:
	for _, part := range w {
		for i := range g {
			if verdict, what, _ := strings.Cut(part, ": "); !used[i] && strings.HasPrefix(g[i], verdict+": ") && strings.Contains(g[i], what) {
				used[i] = true
				continue next
			}
		}
		return false
	}
	return true
}

func hostInterface(name string, addresses ...string) host.Interface {
	return host.Interface{Name: name, Addresses: prefixes(addresses...)}
}

// TestFault: where the program does not do what the policy says, whether it meets
// what is expected or not, that is a FaultError.
func TestFault(t *testing.T) {
	const strict = named + "input:\n  default: drop\n  rules:\n    - allow ssh from office\n"
	const loose = named + "input:\n  default: drop\n  rules:\n    - allow ssh\n"
	for _, c := range []struct{ policy, program, line string }{
		{strict, loose, "drop ssh from not office"},
		{loose, strict, "drop ssh from not office"},
		{loose, strict, "allow ssh"},
	} {
		r := resolved(t, c.policy+"expect:\n  - "+c.line+"\n")
		_, err := expect.Judge(query.Compiled{Resolved: r, Program: compiled(t, resolved(t, c.program))}, nil)
		var fault *expect.FaultError
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), "trust neither answer") || fault.Pos.Line == 0 {
			t.Errorf("%s: got %v", c.line, err)
		}
	}
}
