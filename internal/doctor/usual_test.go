package doctor_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/lab/peers"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

// usual is what most hosts say.
const usual = `version: 1
input:
  default: drop
  rules:
    - allow ssh
    - allow [http, https]
    - allow icmp echo-request
`

// TestUsualRulesets: what ufw, firewalld, scripts of iptables and nftables files usually
// load is no illness, by the real programs.
func TestUsualRulesets(t *testing.T) {
	parsed, err := policy.Parse("policy.yaml", []byte(usual))
	if err != nil {
		t.Fatal(err)
	}
	meaning, err := resolve.Resolve(parsed, resolve.Options{Facts: host.Facts{
		Known: true, DefaultRoute: []string{"eth0"},
		Interfaces: []host.Interface{{Name: "eth0", Index: 2, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}},
		Local:      []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ufw", "firewalld", "nftables-set", "iptables-linear", "ipset"} {
		all, err := peers.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, peer := range all {
			t.Run(peer.Name, func(t *testing.T) {
				b := newBroken(t)
				b.reachable()
				testnet.Require(t, peer.Needs()...)
				if err := peer.Load(t.Context(), b.host, peers.FromPolicy(meaning)); err != nil {
					t.Fatal(err)
				}
				noRuleIll(t, b)
			})
		}
	}
}

// ruleChecks look at the rules of all tools.
var ruleChecks = []string{"replies-cut", "linear-rules", "established-late", "log-unlimited", "two-firewalls", "ipv6-open", "published-past", "dnat-dead", "nat-hairpin", "too-big-dropped", "mss-unclamped", "hidden-rule", "rules-unhit", "judged-again", "set-full", "set-kind", "tracking-unneeded"}

// noRuleIll says that no check of rules finds anything.
func noRuleIll(t *testing.T, b *broken) {
	t.Helper()
	_, all := b.examine("", time.Millisecond)
	if !slices.Equal(all.Unread, nil) {
		t.Errorf("not read: %q", all.Unread)
	}
	for _, f := range all.Findings {
		if slices.Contains(ruleChecks, f.Check) {
			t.Errorf("%+v", f)
		}
	}
}

// TestDocker: a container with a published port, by the real dockerd, is no illness; but
// it is one where the host's rules close that port, until the fix is done.
func TestDocker(t *testing.T) {
	testnet.Require(t, peers.DockerNeeds()...)
	b := newBroken(t)
	b.reachable()
	d, err := peers.StartDocker(t.Context(), b.host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Stop() })
	if err := d.Publish(t.Context(), 8081); err != nil {
		t.Fatal(err)
	}
	if err := b.client.WaitTCP(netip.AddrPortFrom(hostAddress, 8081), time.Minute); err != nil {
		t.Fatal(err)
	}
	noRuleIll(t, b)
	if _, err := d.Run(t.Context(), "run", "--detach", "--stop-signal", "KILL", "--publish", "8082:81", "lab", "/busybox", "httpd", "-f", "-p", "80"); err != nil {
		t.Fatal(err)
	}
	if found, all := b.examine("dnat-dead", time.Millisecond); len(found) != 1 || !strings.Contains(found[0].Text, "listens on tcp/81") {
		t.Errorf("a published port at which nobody listens: %+v", all)
	}
	b.host.MustRun("iptables", "-A", "INPUT", "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT")
	b.host.MustRun("iptables", "-P", "INPUT", "DROP")
	found, all := b.examine("published-past", time.Millisecond)
	if len(found) != 1 || !strings.Contains(found[0].Text, "tcp/8081") || len(found[0].Fix) != 2 {
		t.Fatalf("%+v", all)
	}
	b.host.MustRun("sh", "-c", found[0].Fix[1])
	if found, _ := b.examine("published-past", time.Millisecond); len(found) > 0 {
		t.Errorf("behind the fix: %+v", found)
	}
}
