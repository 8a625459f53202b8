package doctor_test

import (
	"testing"
	"time"

	"sluice/internal/lab/testnet"
)

// leads has the host rewrite tcp/8081 to a target, by each tool.
func (b *broken) leads(tool string, family int, to string) {
	b.t.Helper()
	if tool == "nft" {
		b.host.Nft(nftOf(family, "table FAMILY rewrites { chain pre { type nat hook prerouting priority -100; fib daddr type local tcp dport 8081 counter dnat to "+to+"; }; }"))
		return
	}
	b.tables(tool, family, by(family, "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -m tcp --dport 8081 -j DNAT --to-destination "+to+"\nCOMMIT\n"))
}

// running is a container with a program in it, which listens at port 80.
func (b *broken) running() *testnet.Namespace {
	b.t.Helper()
	box := b.container()
	sleeper := box.Start("sleep", "1000")
	b.t.Cleanup(sleeper.Stop)
	box.ServeTCP("198.51.100.2:80", "[2001:db8:1::2]:80")
	return box
}

// natIllnesses are those of DNAT, by each tool and in both families.
func natIllnesses() (all []illness) {
	for _, family := range []int{4, 6} {
		for _, tool := range append([]string{"nft"}, tools...) {
			all = append(all, illness{
				"dnat-dead", // the program of the container listens elsewhere
				func(b *broken) { b.running(); b.leads(tool, family, "TO:81") },
				func(b *broken) { b.running(); b.leads(tool, family, "TO:80") },
			}, illness{
				"dnat-dead", // nobody has that address
				func(b *broken) {
					b.running()
					to := map[int]string{4: "198.51.100.9:80", 6: "[2001:db8:1::9]:80"}[family]
					b.leads(tool, family, to)
					b.silent(to)
				},
				func(b *broken) { // the router to it does not answer, and another one may
					b.running()
					b.host.Route(map[int]string{4: "203.0.113.0/24", 6: "2001:db8:2::/64"}[family], by(family, "BOX"))
					b.leads(tool, family, map[int]string{4: "203.0.113.9:80", 6: "[2001:db8:2::9]:80"}[family])
				},
			})
		}
	}
	row := func(ports ...string) func(*broken) {
		return func(b *broken) {
			b.running()
			rules := ""
			for _, p := range ports {
				rules += "udp dport " + p + " dnat to 198.51.100.2; "
			}
			b.host.Nft("table ip rewrites { chain pre { type nat hook prerouting priority -100; " + rules + "}; }")
		}
	}
	all = append(all, illness{"dnat-dead", row("10000", "10001", "10002", "10004"), row("10000", "10003", "10002", "10001")}) // for calls
	all = append(all, hairpinIllnesses()...)
	all = append(all, sizeIllnesses()...)
	return append(all, illness{
		"dnat-dead", // what the container sends on inside
		func(b *broken) {
			b.running().Nft("table ip n { chain c { type nat hook prerouting priority -100; tcp dport 82 redirect to :80; }; }")
			b.leads("nft", 4, "TO:81")
		},
		func(b *broken) {
			b.running().Nft("table ip n { chain c { type nat hook prerouting priority -100; tcp dport 81 redirect to :80; }; }")
			b.leads("nft", 4, "TO:81")
		},
	}, illness{
		"dnat-dead",
		func(b *broken) {
			b.container()
			b.host.MustRun("ip", "route", "add", "unreachable", "203.0.113.0/24")
			b.leads("iptables-nft", 4, "203.0.113.9:80")
		},
		func(b *broken) {
			b.container()
			b.host.Route("203.0.113.0/24", "198.51.100.2")
			b.leads("iptables-nft", 4, "203.0.113.9:80")
		},
	}, illness{
		"dnat-dead", // it forwards nothing
		func(b *broken) {
			b.container()
			for _, of := range []string{"all", "default", "eth0", "br0", "veth0", "lo"} {
				b.host.Sysctl("net.ipv4.conf."+of+".forwarding", "0")
			}
			b.leads("iptables-legacy", 4, "TO:80")
		},
		func(b *broken) { b.container(); b.leads("iptables-legacy", 4, "TO:80") },
	}, illness{
		"dnat-dead", // to the host itself
		func(b *broken) { b.reachable(); b.leads("nft", 6, "[HOST]:8082") },
		func(b *broken) { b.reachable(); b.leads("nft", 6, "[HOST]:8080") },
	}, illness{
		"dnat-dead", // to loopback, from outside
		func(b *broken) {
			b.host.ServeTCP("127.0.0.1:8080")
			b.host.Sysctl("net.ipv4.conf.all.route_localnet", "0")
			b.leads("iptables-nft", 4, "127.0.0.1:8080")
		},
		func(b *broken) {
			b.host.ServeTCP("127.0.0.1:8080")
			b.host.Sysctl("net.ipv4.conf.eth0.route_localnet", "1")
			b.leads("iptables-nft", 4, "127.0.0.1:8080")
		},
	})
}

// silent waits until the kernel has given up an address of the bridge.
func (b *broken) silent(address string) {
	b.t.Helper()
	for _, of := range []string{"ipv4", "ipv6"} {
		b.host.Sysctl("net."+of+".neigh.br0.retrans_time_ms", "20")
	}
	if conn, err := b.host.Dial(b.t.Context(), "tcp", address); err == nil {
		_ = conn.Close()
		b.t.Fatal("somebody answers at " + address)
	}
}

// TestDeadTogether: what keeps packets from all targets is one finding, with the rules.
func TestDeadTogether(t *testing.T) {
	b := newBroken(t)
	b.host.Nft("table ip t { chain c { type nat hook prerouting priority -100; tcp dport 81 dnat to 192.0.2.7:80; tcp dport 82 dnat to 192.0.2.8:80; tcp dport 83 dnat to 192.0.2.8:80; }; }")
	for _, of := range []string{"all", "default", "eth0", "lo"} {
		b.host.Sysctl("net.ipv4.conf."+of+".forwarding", "0")
	}
	if found, all := b.examine("dnat-dead", time.Millisecond); len(found) != 1 || len(found[0].Evidence) != 3 {
		t.Errorf("%+v", all)
	}
}
