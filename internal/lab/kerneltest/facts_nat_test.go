package kerneltest

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
)

// A container port that another tool publishes on loopback needs connection
// tracking there: its NAT chain at output never sees untracked packets. So
// loopback is untracked only between 127/8 and 127/8 or ::1 and ::1, and only
// while no foreign NAT chain looks at output.
func TestFactUntrackedLoopbackBreaksPublishedPorts(t *testing.T) {
	testnet.Require(t, testnet.NftNAT)
	w := newWire(t)
	w.client.ServeTCP("192.0.2.2:80")
	w.host.Sysctl("net.ipv4.conf.eth0.route_localnet", "1")
	w.host.Nft(`table ip engine {
		chain out { type nat hook output priority -100; ip daddr 127.0.0.0/8 tcp dport 8080 dnat to 192.0.2.2:80; }
		chain post { type nat hook postrouting priority 100; ip saddr 127.0.0.0/8 oif eth0 masquerade; }
	}`)
	try := testnet.TCPTry{To: netip.MustParseAddrPort("127.0.0.1:8080"), Message: "x", Patience: enough}
	if r := w.host.TryTCP(try); r.Outcome != testnet.Answered {
		t.Fatalf("the published port does not answer on loopback: %v", r)
	}
	w.host.Nft(`table inet t { chain raw { type filter hook output priority raw; ip saddr 127.0.0.0/8 ip daddr 127.0.0.0/8 notrack; }; }`)
	try.Patience = short
	if r := w.host.TryTCP(try); r.Outcome == testnet.Answered {
		t.Error("the published port answers on untracked loopback")
	}
}

// What a bridge carries between its ports passes the forward chain when
// br_netfilter looks (Docker loads it, and its switch is on by default), and
// there the incoming interface is the bridge, never the port. So rules name
// bridges, and a section "forward" concerns bridged frames too.
func TestFactForwardSeesTheBridgeNotItsPort(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Nftables, testnet.BridgeNetfilter)
	n := testnet.New(t)
	host, a, b := n.Unnamed("host"), n.Unnamed("a"), n.Unnamed("b")
	pa, _ := n.Join(testnet.End{In: host, Device: "port-a"}, testnet.End{In: a, Device: "eth0", Addresses: []string{"10.20.0.2/24", "fd00:20::2/64"}})
	pb, _ := n.Join(testnet.End{In: host, Device: "port-b"}, testnet.End{In: b, Device: "eth0", Addresses: []string{"10.20.0.3/24", "fd00:20::3/64"}})
	host.Bridge("br0", nil, pa, pb)
	b.ServeUDP("10.20.0.3:53", "[fd00:20::3]:53")
	host.Nft(`table inet t {
		counter by_bridge {}
		counter by_port {}
		chain c {
			type filter hook forward priority 0;
			udp dport 53 iifname "br0" oifname "br0" counter name by_bridge
			udp dport 53 iifname "port-a" counter name by_port
		}
	}`)
	exchange := func() {
		t.Helper()
		for _, to := range []string{"10.20.0.3:53", "[fd00:20::3]:53"} {
			if r := a.TryUDP(testnet.UDPTry{To: netip.MustParseAddrPort(to), Patience: enough}); r.Outcome != testnet.Answered {
				t.Fatalf("%s: %v", to, r)
			}
		}
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		host.Sysctl("net.bridge.bridge-nf-call-"+family, "0")
	}
	exchange()
	if n := counter(t, host, "by_bridge"); n != 0 {
		t.Errorf("%d bridged datagrams passed forward although br_netfilter does not look", n)
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		host.Sysctl("net.bridge.bridge-nf-call-"+family, "1")
	}
	exchange()
	if bridge, port := counter(t, host, "by_bridge"), counter(t, host, "by_port"); bridge != 2 || port != 0 {
		t.Errorf("of two bridged datagrams %d were seen to come in by the bridge, %d by its port; it was 2 and 0", bridge, port)
	}
}

// A reset ends a TCP client's try at once. ICMP port unreachable does not do so
// everywhere: in IPv6 a client on Linux 6.18 goes on trying, one on 6.1 gives
// up; the log says which. So "reject" answers TCP with a reset.
func TestFactResetEndsEveryTCPClient(t *testing.T) {
	w := newWire(t)
	w.host.Nft(`table inet t { chain c {
		type filter hook input priority 0
		tcp dport 81 reject with icmpx port-unreachable
		tcp dport 82 reject with tcp reset
	}; }`)
	for _, e := range wireEnds {
		if gaveUp(w.client, at(e.host, 82), enough) == nil {
			t.Errorf("%s: a reset does not end the try", e.family)
		}
		err := gaveUp(w.client, at(e.host, 81), patience(!e.v6))
		if err == nil && !e.v6 {
			t.Errorf("%s: ICMP port unreachable does not end the try", e.family)
		}
		t.Logf("%s: ICMP port unreachable ends the try: %t", e.family, err != nil)
	}
}

// gaveUp connects as any program does, and returns why the kernel gave up; nil
// when it was still trying at the end.
func gaveUp(s *testnet.Namespace, to netip.AddrPort, patience time.Duration) (err error) {
	_ = s.Do(func() error {
		dialer := net.Dialer{Timeout: patience}
		conn, dialErr := dialer.Dial("tcp", to.String())
		var netErr net.Error
		switch {
		case dialErr == nil:
			_ = conn.Close()
		case !errors.As(dialErr, &netErr) || !netErr.Timeout():
			err = dialErr
		}
		return nil
	})
	return err
}
