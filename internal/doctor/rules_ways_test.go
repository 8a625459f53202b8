package doctor_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
	"sluice/internal/prove/check"
)

// besides is a container with another one beside it, whose bridge asks the rules of
// iptables about frames or does not.
func (b *broken) besides(frames string) *testnet.Namespace {
	b.t.Helper()
	b.running()
	for _, of := range []string{"iptables", "ip6tables"} {
		if err := b.host.SetSysctl("net.bridge.bridge-nf-call-"+of, frames); err != nil && frames == "1" {
			testnet.Lacks(b.t, "br_netfilter", err)
		}
	}
	other := b.net.Unnamed("other")
	port, _ := b.net.Join(testnet.End{In: b.host, Device: "veth1"}, testnet.End{In: other, Device: "eth0", Addresses: []string{"198.51.100.3/24", "2001:db8:1::3/64"}})
	b.host.MustRun("ip", "link", "set", port.Device, "master", "br0")
	other.Route("default4", "198.51.100.1")
	other.Route("default6", "2001:db8:1::1")
	return other
}

// reaches asks whether a connection happens.
func (b *broken) reaches(from *testnet.Namespace, to string, wanted bool) {
	b.t.Helper()
	patience := time.Minute
	if !wanted {
		patience = 300 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	conn, err := from.Dial(ctx, "tcp", to)
	if err == nil {
		_ = conn.Close()
	}
	if (err == nil) != wanted {
		b.t.Errorf("%s is reached: %v, %v wanted", to, err, wanted)
	}
}

// hairpinIllnesses are what is asked for from the side of the server that answers.
func hairpinIllnesses() (all []illness) {
	for _, family := range []int{4, 6} {
		public := netip.AddrPortFrom(netip.MustParseAddr(by(family, "HOST")), 8081).String()
		for _, tool := range append([]string{"nft"}, tools...) {
			all = append(all, illness{
				"nat-hairpin",
				func(b *broken) {
					other := b.besides("0")
					b.leads(tool, family, "TO:80")
					b.reaches(other, public, false)
				},
				func(b *broken) { // its source is rewritten
					other := b.besides("0")
					b.leads(tool, family, "TO:80")
					if tool == "nft" {
						b.host.Nft(nftOf(family, "table FAMILY more { chain post { type nat hook postrouting priority 100; iifname br0 oifname br0 masquerade; }; }"))
					} else {
						b.host.MustRun(command(tool, family), "-t", "nat", "-A", "POSTROUTING", "-o", "br0", "-m", "conntrack", "--ctstate", "DNAT", "--ctorigdst", by(family, "HOST"), "-j", "MASQUERADE")
					}
					b.reaches(other, public, true)
				},
			})
		}
	}
	const own = "table ip own { chain out { type nat hook output priority -100; ip daddr 127.0.0.1 tcp dport 8081 dnat to 198.51.100.2:80; }; }\n"
	const masked = "table ip masked { chain post { type nat hook postrouting priority 100; ip saddr 127.0.0.0/8 oifname br0 masquerade; }; }"
	return append(all, illness{
		"nat-hairpin",
		func(b *broken) {
			other := b.besides("0")
			b.leads("nft", 4, "TO:80")
			b.reaches(other, "192.0.2.1:8081", false)
		},
		func(b *broken) { // bridged frames pass connection tracking
			other := b.besides("1")
			b.leads("nft", 4, "TO:80")
			b.reaches(other, "192.0.2.1:8081", true)
		},
	}, illness{
		"nat-hairpin", // by the host itself
		func(b *broken) {
			b.running()
			b.host.Nft(own + masked)
			b.reaches(b.host, "127.0.0.1:8081", false)
		},
		func(b *broken) {
			b.running()
			b.host.Sysctl("net.ipv4.conf.br0.route_localnet", "1")
			b.host.Nft(own + masked)
			b.reaches(b.host, "127.0.0.1:8081", true)
		},
	}, illness{
		"nat-hairpin",
		func(b *broken) {
			b.running()
			b.host.Sysctl("net.ipv4.conf.br0.route_localnet", "1")
			b.host.Nft(own)
			b.reaches(b.host, "127.0.0.1:8081", false)
		},
		func(b *broken) { b.running(); b.leads("iptables-nft", 4, "TO:80") },
	})
}

// chainOf has a chain of table filter say rules, by each tool: those of iptables, or of nft.
func (b *broken) chainOf(tool string, family int, hook, policy, xtables, nft string) {
	b.t.Helper()
	if tool == "nft" {
		b.host.Nft(nftOf(family, "table FAMILY "+hook+"s { chain c { type filter hook "+hook+" priority 0; policy "+policy+"; "+nft+" }; }"))
		return
	}
	chain := strings.ToUpper(hook)
	text := "*filter\n:" + chain + " " + strings.ToUpper(policy) + " [0:0]\n"
	for rule := range strings.SplitSeq(xtables, "; ") {
		text += "-A " + chain + " " + rule + "\n"
	}
	b.tables(tool, family, by(family, text+"COMMIT\n"))
}

// tunnel is a device whose packets are small.
func (b *broken) tunnel() {
	b.t.Helper()
	b.container()
	b.host.MustRun("ip", "tuntap", "add", "tun0", "mode", "tun")
	b.host.MustRun("ip", "link", "set", "tun0", "mtu", "1400", "up")
	b.host.MustRun("ip", "addr", "add", "203.0.113.1/24", "dev", "tun0")
	b.host.MustRun("ip", "addr", "add", "2001:db8:3::1/64", "dev", "tun0", "nodad")
}

// sizeIllnesses are those of packets that are too large.
func sizeIllnesses() (all []illness) {
	for _, family := range []int{4, 6} {
		icmp := map[int]string{4: "icmp", 6: "ipv6-icmp"}[family]
		for _, tool := range append([]string{"nft"}, tools...) {
			for _, hook := range []string{"input", "forward", "output"} {
				if tool == "iptables-legacy" && hook == "output" || tool == "nft" && hook == "forward" {
					continue // one of another tool stands for it
				}
				all = append(all, illness{
					"too-big-dropped",
					func(b *broken) {
						b.container()
						b.chainOf(tool, family, hook, "accept", "-p "+icmp+" -j DROP; -m conntrack --ctstate ESTABLISHED -j ACCEPT", "meta l4proto "+icmp+" drop; ct state established accept;")
					},
					func(b *broken) { // what is related is let in before
						b.container()
						b.chainOf(tool, family, hook, "accept", "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT; -p "+icmp+" -j DROP", "ct state established,related accept; meta l4proto "+icmp+" drop;")
					},
				})
			}
			all = append(all, illness{
				"mss-unclamped",
				func(b *broken) {
					b.tunnel()
					b.chainOf("nft", 10-family, "forward", "drop", "", "")
					b.chainOf(tool, family, "forward", "drop", "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT; -o tun0 -j ACCEPT", "ct state established,related accept; oifname tun0 accept;")
				},
				func(b *broken) {
					b.tunnel()
					b.chainOf("nft", 10-family, "forward", "drop", "", "")
					b.chainOf(tool, family, "forward", "drop", "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT; -o tun0 -j ACCEPT", "oifname tun0 tcp flags syn tcp option maxseg size set rt mtu; ct state established,related accept; oifname tun0 accept;")
					if tool != "nft" {
						testnet.Require(b.t, testnet.IPTablesLegacy("mangle"))
						b.host.MustRun(command(tool, family), "-t", "mangle", "-A", "FORWARD", "-o", "tun0", "-p", "tcp", "--tcp-flags", "SYN,RST", "SYN", "-j", "TCPMSS", "--clamp-mss-to-pmtu")
					}
				},
			})
		}
	}
	return append(all, illness{
		"too-big-dropped", // connections of that way do not work at all
		func(b *broken) {
			b.container()
			b.chainOf("nft", 6, "input", "drop", "", "ct state established accept;")
		},
		func(b *broken) { b.container(); b.chainOf("nft", 6, "input", "drop", "", "iif lo accept;") },
	}, illness{
		"mss-unclamped", // nothing is forwarded there
		func(b *broken) { b.tunnel() },
		func(b *broken) {
			b.tunnel()
			b.chainOf("nft", 4, "forward", "drop", "", "")
			b.chainOf("nft", 6, "forward", "drop", "", "")
		},
	})
}

// TestBlackHole: a tunnel without a clamp is a warning where the host does not tell senders
// that their packets are too large for it.
func TestBlackHole(t *testing.T) {
	b := newBroken(t)
	b.tunnel()
	b.chainOf("nft", 6, "forward", "drop", "", "")
	if found, all := b.examine("mss-unclamped", time.Millisecond); len(found) != 1 || found[0].Severity != check.Remark {
		t.Errorf("%+v", all)
	}
	b.chainOf("iptables-nft", 4, "output", "accept", "-p icmp -j DROP", "")
	if found, all := b.examine("mss-unclamped", time.Millisecond); len(found) != 1 || found[0].Severity != check.Warning || !strings.Contains(found[0].Text, "-p icmp -j DROP") {
		t.Errorf("%+v", all)
	}
}
