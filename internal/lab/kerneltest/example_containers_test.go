package kerneltest

import (
	"regexp"
	"strings"
	"testing"

	"sluice/internal/lab/testnet"
)

// Rules as a container engine writes them: published ports are rewritten in
// prerouting, the containers' way out is masqueraded, and the engine's own
// filter accepts what it published. Written by hand, after what such engines
// are known to do.

// engineLegacy is the IPv4 half by iptables-legacy.
var engineLegacy = [][]string{
	{"-t", "nat", "-N", "ENGINE"},
	{"-t", "nat", "-A", "PREROUTING", "-m", "addrtype", "--dst-type", "LOCAL", "-j", "ENGINE"},
	{"-t", "nat", "-A", "OUTPUT", "!", "-d", "127.0.0.0/8", "-m", "addrtype", "--dst-type", "LOCAL", "-j", "ENGINE"},
	{"-t", "nat", "-A", "POSTROUTING", "-s", "172.17.0.0/16", "!", "-o", "docker0", "-j", "MASQUERADE"},
	{"-t", "nat", "-A", "ENGINE", "!", "-i", "docker0", "-p", "tcp", "--dport", "8080", "-j", "DNAT", "--to-destination", "172.17.0.2:80"},
	{"-t", "nat", "-A", "ENGINE", "!", "-i", "docker0", "-p", "tcp", "--dport", "9000", "-j", "DNAT", "--to-destination", "172.17.0.2:9000"},
	{"-t", "nat", "-A", "ENGINE", "!", "-i", "docker0", "-p", "tcp", "--dport", "9443", "-j", "DNAT", "--to-destination", "172.17.0.2:443"},
	{"-P", "FORWARD", "DROP"},
	{"-A", "FORWARD", "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"},
	{"-A", "FORWARD", "-i", "docker0", "-j", "ACCEPT"},
	{"-A", "FORWARD", "-o", "docker0", "-d", "172.17.0.2", "-p", "tcp", "-j", "ACCEPT"},
}

// engineNft is both families, or IPv6 alone, by nft in tables of the engine's
// own.
const engineNft = `
table ip engine {
	chain ports {
		iifname != "docker0" tcp dport 8080 dnat to 172.17.0.2:80
		iifname != "docker0" tcp dport 9000 dnat to 172.17.0.2:9000
		iifname != "docker0" tcp dport 9443 dnat to 172.17.0.2:443
	}
	chain prerouting { type nat hook prerouting priority -100; fib daddr type local jump ports; }
	chain output { type nat hook output priority -100; ip daddr != 127.0.0.0/8 fib daddr type local jump ports; }
	chain postrouting { type nat hook postrouting priority 100; ip saddr 172.17.0.0/16 oifname != "docker0" masquerade; }
	chain forward {
		type filter hook forward priority 0; policy drop;
		ct state established,related accept
		iifname "docker0" accept
		oifname "docker0" ip daddr 172.17.0.2 tcp dport { 80, 443, 9000 } accept
	}
}
`

const engineNft6 = `
table ip6 engine {
	chain ports {
		iifname != "docker0" tcp dport 8080 dnat to [2001:db8:17::2]:80
		iifname != "docker0" tcp dport 9000 dnat to [2001:db8:17::2]:9000
		iifname != "docker0" tcp dport 9443 dnat to [2001:db8:17::2]:443
	}
	chain prerouting { type nat hook prerouting priority -100; fib daddr type local jump ports; }
	chain output { type nat hook output priority -100; fib daddr type local jump ports; }
	chain postrouting { type nat hook postrouting priority 100; ip6 saddr 2001:db8:17::/64 oifname != "docker0" masquerade; }
	chain forward {
		type filter hook forward priority 0; policy drop;
		ct state established,related accept
		iifname "docker0" accept
		oifname "docker0" ip6 daddr 2001:db8:17::2 tcp dport { 80, 443, 9000 } accept
	}
}
`

func TestExampleContainers(t *testing.T) {
	for _, engine := range []struct {
		name     string
		features []testnet.Feature
		start    func(*town)
		rules    func(*town) string
	}{
		{
			name: "engine by nft",
			start: func(c *town) {
				c.host.Nft(engineNft + engineNft6)
			},
			rules: func(c *town) string {
				return c.host.MustRun("nft", "list", "table", "ip", "engine") + c.host.MustRun("nft", "list", "table", "ip6", "engine")
			},
		},
		{
			name:     "engine by iptables-legacy",
			features: []testnet.Feature{testnet.IPTablesLegacy("nat"), testnet.IPTablesLegacy("filter")},
			start: func(c *town) {
				for _, rule := range engineLegacy {
					c.host.MustRun("iptables-legacy", rule...)
				}
				c.host.Nft(engineNft6)
			},
			rules: func(c *town) string {
				return c.host.MustRun("iptables-legacy", "-S") + c.host.MustRun("iptables-legacy", "-t", "nat", "-S") + c.host.MustRun("nft", "list", "table", "ip6", "engine")
			},
		},
	} {
		t.Run(engine.name, func(t *testing.T) {
			testnet.Require(t, engine.features...)
			var before string
			e := newExample(t, "containers", func(c *town) {
				container, neighbour := c.net.Unnamed("container"), c.net.Unnamed("neighbour")
				c.homes["container"], c.homes["neighbour"], c.homes["engine"] = container, neighbour, c.host
				port, _ := c.net.Join(
					testnet.End{In: c.host, Device: "veth1"},
					testnet.End{In: container, Device: "eth0", Addresses: []string{"172.17.0.2/16", "2001:db8:17::2/64"}},
				)
				other, _ := c.net.Join(
					testnet.End{In: c.host, Device: "veth2"},
					testnet.End{In: neighbour, Device: "eth0", Addresses: []string{"172.17.0.3/16", "2001:db8:17::3/64"}},
				)
				c.host.Bridge("docker0", []string{"172.17.0.1/16", "2001:db8:17::1/64"}, port, other)
				// As engines do, so that what one container sends to another on its bridge passes forward.
				if testnet.BridgeNetfilter.Ask() == nil {
					c.host.Sysctl("net.bridge.bridge-nf-call-iptables", "1")
					c.host.Sysctl("net.bridge.bridge-nf-call-ip6tables", "1")
				}
				container.Route("default4", "172.17.0.1")
				container.Route("default6", "2001:db8:17::1")
				c.outside.Route("172.17.0.0/16", "198.51.100.1")
				c.outside.Route("2001:db8:17::/64", "2001:db8:100::1")
				serve(container, openPorts...)
				engine.start(c)
				c.try(t, `
					stranger > host tcp/9443 = answered # before Sluice, all that the engine publishes is open
					stranger > host tcp/9000 = answered
				`, false)
				before = engine.rules(c)
			})
			e.try(t, `
				stranger > host tcp/8080    = answered as stranger
				office > host tcp/9000      = answered as office
				stranger > host tcp/9000    = silent
				stranger > host tcp/9443    = silent
				office > host tcp/9443      = silent
				stranger > container tcp/80 = silent
				neighbour > container tcp/80 = answered as neighbour
				container > stranger tcp/80 = answered as host
				container > stranger udp/53 = answered as host
				container > engine udp/53   = answered
				container > engine tcp/22   = silent
				office > host tcp/22        = answered
				stranger > host tcp/22      = silent
				stranger > host tcp/80      = silent
				stranger > host ping        = answered
				host > host tcp/8080        = answered
				host > container tcp/80     = answered
			`, false)
			counters := regexp.MustCompile(`packets \d+ bytes \d+`)
			if after := engine.rules(e.town); counters.ReplaceAllString(after, "") != counters.ReplaceAllString(before, "") {
				t.Errorf("the engine's rules are not what they were:\n%s\nbefore:\n%s", after, before)
			}
			if plan := e.run(t, "plan", e.file); !strings.Contains(plan, "engine") && !strings.Contains(plan, "FORWARD") {
				t.Errorf("the plan does not name the engine's chains that may drop:\n%s", plan)
			}
			e.noDrift(t)
		})
	}
}
