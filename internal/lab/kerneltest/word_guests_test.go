package kerneltest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/lab/testnet"
)

// A guest is held to its addresses, in flows that are known too; its public address leads
// to it, and is what others see of it. In a network namespace it is the same, and so it is
// where flows are accelerated.
func TestWordsOfGuests(t *testing.T) {
	for _, enforce := range []string{"forward", "namespace"} {
		for _, accelerate := range []bool{false, true} {
			t.Run(fmt.Sprint(enforce, " accelerate ", accelerate), func(t *testing.T) {
				t.Parallel()
				if accelerate {
					testnet.Require(t, testnet.Flowtable)
				}
				testGuests(t, enforce, accelerate)
			})
		}
	}
}

func testGuests(t *testing.T, enforce string, accelerate bool) {
	t.Helper()
	c := newTown(t)
	apply(t, c.host, sides+"forward: { default: allow }\n")
	conn := c.open(t, "inside2", "stranger", 80, false, "hello")
	own := c.open(t, "inside", "stranger", 80, false, "hello")

	dir := t.TempDir()
	view, netns := "hv-1.yaml", ""
	if enforce == "namespace" {
		view, netns = "guest-netns/r-1.yaml", "netns: r-1"
	}
	for name, text := range map[string]string{
		"fleet.yaml": "version: 1\nfleet: example.net\nparts: vms.yaml\nsets: {vms: {guests: app, within: [10.20.0.0/16, \"2001:db8:20::/48\"]}}\nguests: {public: [198.51.100.0/24, \"2001:db8:100::/48\"]}\n",
		"vms.yaml":   sides + fmt.Sprintf("guests: { enforce: %s, public: map }\nforward: { default: drop, accelerate: %t, rules: [allow any from guests, allow any to guests, allow any from 10.20.0.6] }\n", enforce, accelerate),
		view: fmt.Sprintf(`version: 1
fleet: %sfleet.yaml
host: hv-1
%s
guests:
  vm-1: { interface: lan0, %s, addresses: [10.20.0.5, "2001:db8:20::5"], public: [198.51.100.37, "2001:db8:100:f::5"] }
`, strings.Repeat("../", strings.Count(view, "/")), netns, netns),
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, " , ", " ")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	artifact := applyFile(t, c.host, filepath.Join(dir, view))
	c.try(t, `
		inside > stranger tcp/80    = answered as mapped
		inside > stranger ping      = answered
		inside > gateway tcp/80     = answered
		stranger > mapped tcp/80    = answered as stranger
		stranger > mapped udp/53    = answered as stranger
		inside2 > stranger tcp/80   = silent
		inside2 > stranger udp/53   = silent
		inside2 > stranger ping     = silent
		inside2 > gateway tcp/80    = silent
		elsewhere > stranger tcp/80 = silent
		stranger > inside tcp/80    = answered
	`, false)
	if got := own.Exchange("more", enough); got.Outcome != testnet.Answered {
		t.Errorf("the guest's own flow: %v", got)
	}
	if got := conn.Exchange("more", short); got.Outcome == testnet.Answered {
		t.Error("a flow of a forged source goes on")
	}
	if accelerate {
		c.offloads(t)
	}
	if t.Failed() {
		t.Log(artifact.Text())
	}
}

// offloads says that what inside sends to a stranger passes the forward hook no more once its
// flow is known.
func (c *town) offloads(t *testing.T) {
	t.Helper()
	c.host.Nft(`table inet t {
		counter forwarded {}
		chain through { type filter hook forward priority 10; tcp dport 80 counter name forwarded; }
	}`)
	for _, v6 := range []bool{false, true} {
		conn := c.open(t, "inside", "stranger", 80, v6, "first")
		before := counter(t, c.host, "forwarded")
		const messages = 20
		for i := range messages {
			if r := conn.Exchange(fmt.Sprint("message ", i), enough); r.Outcome != testnet.Answered {
				t.Fatal(r)
			}
		}
		if n := counter(t, c.host, "forwarded") - before; n != 0 {
			t.Errorf("IPv6 %t: %d packets of an established flow passed the forward hook", v6, n)
		}
	}
}
