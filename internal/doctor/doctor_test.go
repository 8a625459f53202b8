package doctor_test

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/doctor"
	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/conntrack"
)

// broken is a host with a client at the other end of a cable.
type broken struct {
	t            *testing.T
	net          *testnet.Net
	host, client *testnet.Namespace
	hostPort     *testnet.Port
	clientPort   *testnet.Port
}

var hostAddress = netip.MustParseAddr("192.0.2.1")

func newBroken(t *testing.T) *broken {
	testnet.Require(t, testnet.Nftables)
	n := testnet.New(t)
	b := &broken{t: t, net: n, host: n.Unnamed("host"), client: n.Unnamed("client")}
	b.hostPort, b.clientPort = n.Join(testnet.End{In: b.host, Device: "eth0", Addresses: []string{"192.0.2.1/24"}},
		testnet.End{In: b.client, Device: "eth0", Addresses: []string{"192.0.2.2/24"}})
	return b
}

// examine looks at the host, and gives what the check has found.
func (b *broken) examine(id string, window time.Duration) (found []doctor.Finding, all *doctor.Report) {
	b.t.Helper()
	err := b.host.Do(func() (err error) {
		all, err = doctor.Examine(b.t.Context(), doctor.Options{Window: window})
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range all.Findings {
		if f.Text == "" || len(f.Evidence) == 0 {
			b.t.Errorf("a finding that says nothing: %+v", f)
		}
		if c, _ := doctor.Explain(f.Check); c == nil || len(f.Settings) > 0 && !c.Fixable {
			b.t.Errorf("%s names settings, and says that nothing sets them: %+v", f.Check, f.Settings)
		}
		if f.Check == id {
			found = append(found, f)
		}
	}
	return found, all
}

// flood sends packets in turn from the client until the test ends.
func (b *broken) flood(packets ...[]byte) {
	b.t.Helper()
	i := 0
	stop := testnet.Flood(50, 10*time.Millisecond, func() error {
		i++
		return b.clientPort.Send(packets[i%len(packets)])
	})
	b.t.Cleanup(func() {
		if _, err := stop(); err != nil {
			b.t.Error(err)
		}
	})
}

func from(host string, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(host), port)
}

// listener is a socket of the host that nobody accepts from.
func (b *broken) listener(at string, queue int) {
	b.t.Helper()
	address := netip.MustParseAddrPort(at)
	err := b.host.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		b.t.Cleanup(func() { _ = unix.Close(fd) })
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: address.Addr().As4(), Port: int(address.Port())}); err != nil {
			return err
		}
		return unix.Listen(fd, queue)
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// dial opens connections from the client, some of which are refused or never answered.
func (b *broken) dial(to string, n int) {
	for range n {
		go func() {
			conn, err := b.client.Dial(b.t.Context(), "tcp", to)
			if err == nil {
				b.t.Cleanup(func() { _ = conn.Close() })
			}
		}()
	}
}

// tracked has the host keep connection state, and makes entries of it.
func (b *broken) tracked(flows ...conntrack.Flow) {
	b.t.Helper()
	b.host.Nft("table inet t { chain c { type filter hook input priority 0; ct state new accept; }; }")
	if err := b.host.Do(func() error { return conntrack.CreateAll(flows) }); err != nil {
		b.t.Fatal(err)
	}
}

// flows are n connections, one from each of so many sources.
func flows(n, sources int) (out []conntrack.Flow) {
	for i := range n {
		source := netip.AddrFrom4([4]byte{198, 51, 100, byte(1 + i%sources)})
		out = append(out, conntrack.Flow{Protocol: unix.IPPROTO_TCP, Answered: true, Seconds: 5 * 24 * 3600, Original: conntrack.Tuple{
			Source: source, Destination: hostAddress, SourcePort: uint16(1024 + i/sources), DestinationPort: 443,
		}})
	}
	return out
}

// TestIllnesses: each check finds the host that has its illness, and not the one that looks
// like it and is healthy.
func TestIllnesses(t *testing.T) {
	for _, test := range []illness{
		{
			"listen-queue",
			func(b *broken) { b.listener("192.0.2.1:80", 0); b.dial("192.0.2.1:80", 30) },
			func(b *broken) { b.listener("192.0.2.1:80", 100); b.dial("192.0.2.1:80", 30) },
		},
		{
			"reverse-path",
			func(b *broken) {
				b.host.Sysctl("net.ipv4.conf.all.rp_filter", "1")
				b.flood(testnet.UDP(from("203.0.113.9", 1), from("192.0.2.1", 9)))
			},
			func(b *broken) { // forged too, and let in
				b.host.Sysctl("net.ipv4.conf.all.rp_filter", "0")
				b.host.Sysctl("net.ipv4.conf.eth0.rp_filter", "0")
				b.flood(testnet.UDP(from("203.0.113.9", 1), from("192.0.2.1", 9)))
			},
		},
		{
			"udp-buffers",
			func(b *broken) {
				b.deaf("192.0.2.1:53")
				b.flood(testnet.UDP(from("192.0.2.2", 1), from("192.0.2.1", 53), make([]byte, 1000)...))
			},
			func(b *broken) {
				b.host.ServeUDP("192.0.2.1:53")
				b.client.ServeUDP("192.0.2.2:1")
			},
		},
		{
			"syn-cookies",
			func(b *broken) {
				b.host.Sysctl("net.ipv4.tcp_syncookies", "1")
				b.listener("192.0.2.1:80", 4)
				var syns [][]byte
				for i := range 200 {
					syns = append(syns, testnet.SYN(from("192.0.2.77", uint16(1024+i)), from("192.0.2.1", 80), 1460))
				}
				b.flood(syns...)
			},
			func(b *broken) { b.listener("192.0.2.1:80", 100); b.dial("192.0.2.1:80", 30) },
		},
		{
			"table-one-source",
			func(b *broken) { b.tracked(flows(1200, 2)...) },
			func(b *broken) { b.tracked(flows(1200, 100)...) },
		},
		{
			"table-dead",
			func(b *broken) { // answered once, and never again
				f := flows(1200, 100)
				for i := range f {
					f[i].Seconds -= 7200
				}
				b.tracked(f...)
			},
			func(b *broken) { b.tracked(flows(1200, 100)...) },
		},
		{
			"drops",
			func(b *broken) {
				b.host.Nft("table inet t { chain c { type filter hook input priority 0; udp dport 9 drop; }; }")
				b.flood(testnet.UDP(from("192.0.2.2", 1), from("192.0.2.1", 9)))
			},
			func(b *broken) {
				b.host.Nft("table inet t { chain c { type filter hook input priority 0; udp dport 10 drop; }; }")
				b.host.ServeUDP("192.0.2.1:9")
				b.client.ServeUDP("192.0.2.2:1")
			},
		},
		{
			"listens-wide",
			func(b *broken) { b.used("0.0.0.0:5432", b.host, "127.0.0.1:5432") },
			func(b *broken) { b.used("0.0.0.0:5432", b.client, "192.0.2.1:5432") },
		},
		{
			"replies-cut", // the two chains of story 3
			func(b *broken) {
				b.asks("8.8.8.8")
				b.host.Nft(`table inet geo { set allowed { type ipv4_addr; flags interval; elements = { 198.51.100.0/24 }; }
					chain countries { type filter hook input priority -1; iif lo accept; ip saddr != @allowed drop; }
					chain input { type filter hook input priority 0; ct state established,related accept; }
				}`)
			},
			func(b *broken) { // the same set behind established
				b.asks("8.8.8.8")
				b.host.Nft(`table inet geo { set allowed { type ipv4_addr; flags interval; elements = { 198.51.100.0/24 }; }
					chain input { type filter hook input priority 0; ct state established,related accept; iif lo accept; ip saddr != @allowed drop; }
				}`)
			},
		},
		{
			"linear-rules", // story 2
			func(b *broken) {
				for i := range 120 {
					b.host.MustRun("iptables-legacy", "-t", "raw", "-A", "PREROUTING", "-s", "203.0.113."+strconv.Itoa(i), "-j", "DROP")
				}
			},
			func(b *broken) { // as many, each its own
				b.host.Nft("table inet t { chain c { type filter hook input priority 0; }; }")
				for i := range 120 {
					rule := []string{"add", "rule", "inet", "t", "c", "ip", "saddr", "203.0.113." + strconv.Itoa(i), "tcp", "dport", strconv.Itoa(1000 + i), "accept"}
					b.host.MustRun("nft", rule...)
				}
			},
		},
		{
			"throttled",
			func(b *broken) { b.quota("5000") },
			func(b *broken) { b.quota("-1") },
		},
		{
			"bridged-frames",
			func(b *broken) { b.bridge("1") },
			func(b *broken) { b.bridge("0") },
		},
		{
			"offloads-off",
			func(b *broken) {
				b.offload(false)
				b.flood(testnet.UDP(from("192.0.2.2", 1), from("192.0.2.1", 9)))
			},
			func(b *broken) {
				b.offload(true)
				b.flood(testnet.UDP(from("192.0.2.2", 1), from("192.0.2.1", 9)))
			},
		},
		{
			"rules-busy",
			func(b *broken) { b.rules(10_000, ""); b.flood(testnet.UDP(from("192.0.2.2", 1), from("192.0.2.1", 9))) },
			func(b *broken) { // as many, behind what ends the way
				b.rules(10_000, "udp dport 9 drop;")
				b.flood(testnet.UDP(from("192.0.2.2", 1), from("192.0.2.1", 9)))
			},
		},
		{
			"established-late",
			func(b *broken) {
				text := "table inet t { chain c { type filter hook input priority 0; "
				for i := range 30 {
					text += "tcp dport " + strconv.Itoa(1000+i) + " ip saddr 198.51.100." + strconv.Itoa(i) + " accept; "
				}
				b.host.Nft(text + "ct state established,related accept; drop; }; }")
			},
			func(b *broken) {
				text := ""
				for i := range 30 {
					text += "tcp dport " + strconv.Itoa(1000+i) + " ip saddr 198.51.100." + strconv.Itoa(i) + " accept; "
				}
				b.host.Nft("table inet t { chain c { type filter hook input priority 0; ct state established,related accept; " + text + "drop; }; }")
				// Before connection tracking, nothing can be let in by its connection.
				b.host.Nft("table ip raw { chain c { type filter hook prerouting priority raw; " + text + "}; }")
			},
		},
		{
			"no-flowtable", // story 4
			func(b *broken) { b.forwarded("ct state established,related accept; udp dport 53 accept;") },
			func(b *broken) { b.forwarded("") },
		},
		{
			"log-unlimited",
			func(b *broken) {
				b.host.MustRun("iptables-legacy", "-A", "INPUT", "-p", "tcp", "--dport", "23", "-j", "LOG", "--log-prefix", `"quoted" `)
			},
			func(b *broken) {
				b.host.MustRun("iptables-legacy", "-N", "logged")
				b.host.MustRun("iptables-legacy", "-A", "logged", "-j", "LOG")
				b.host.MustRun("iptables-legacy", "-A", "INPUT", "-m", "limit", "--limit", "5/min", "-j", "logged")
				b.host.Nft("table inet t { chain c { type filter hook input priority 0; tcp dport 23 limit rate 5/minute log; }; }")
			},
		},
		{
			"two-firewalls",
			func(b *broken) {
				b.host.MustRun("iptables-legacy", "-A", "INPUT", "-p", "tcp", "--dport", "23", "-j", "DROP")
				b.host.Nft("table inet t { chain c { type filter hook input priority 0; policy drop; tcp dport 22 accept; }; }")
			},
			func(b *broken) { // the legacy one filters nothing
				b.host.MustRun("iptables-legacy", "-A", "INPUT", "-p", "tcp", "--dport", "23", "-j", "ACCEPT")
				b.host.Nft("table inet t { chain c { type filter hook input priority 0; policy drop; tcp dport 22 accept; }; }")
			},
		},
		{
			"ipv6-open",
			func(b *broken) {
				b.reachable()
				b.host.MustRun("iptables-legacy", "-P", "INPUT", "DROP")
			},
			func(b *broken) {
				b.reachable()
				b.host.MustRun("iptables-legacy", "-P", "INPUT", "DROP")
				b.host.MustRun("ip6tables-legacy", "-P", "INPUT", "DROP")
			},
		},
		{
			"files",
			func(b *broken) { b.holder(60) },
			func(b *broken) { b.holder(4000) },
		},
		{
			"log-busy",
			func(b *broken) { b.logger("while :; do :; done") },
			func(b *broken) { b.logger("sleep 1000") },
		},
	} {
		t.Run(test.check, test.try)
	}
}

// asks has the host ask a name server of the internet, in a mount namespace's place: by a
// connection of its own, whose answers rules decide on.
func (b *broken) asks(server string) {
	b.t.Helper()
	b.clientPort.Address(server + "/32")
	b.host.Route("default4", "192.0.2.2")
	b.client.ServeTCP(server + ":53")
	conn, err := b.host.Dial(b.t.Context(), "tcp", server+":53")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close() })
}

// reachable gives the host public addresses of both families and a program at all of them.
func (b *broken) reachable() {
	b.t.Helper()
	testnet.Require(b.t, testnet.IPTablesLegacy("filter"))
	b.hostPort.Address("2001:db8::1/64")
	b.clientPort.Address("2001:db8::2/64")
	b.host.Route("default4", "192.0.2.2")
	b.host.Route("default6", "2001:db8::2")
	b.host.ServeTCP("[::]:8080")
}

// deaf is a socket of UDP with a small buffer that nobody reads.
func (b *broken) deaf(at string) {
	b.t.Helper()
	if err := b.host.Do(func() error {
		conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at)))
		if err != nil {
			return err
		}
		b.t.Cleanup(func() { _ = conn.Close() })
		return conn.SetReadBuffer(4096)
	}); err != nil {
		b.t.Fatal(err)
	}
}

// used is a server that somebody is connected to.
func (b *broken) used(at string, by *testnet.Namespace, to string) {
	b.t.Helper()
	b.host.ServeTCP(at)
	conn, err := by.Dial(b.t.Context(), "tcp", to)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close() })
}

// holder is a program with a socket and 57 more files that may have so many.
func (b *broken) holder(limit int) {
	b.t.Helper()
	program := `import resource, socket, time
s = [socket.socket() for _ in range(57)]
resource.setrlimit(resource.RLIMIT_NOFILE, (` + strconv.Itoa(limit) + `, ` + strconv.Itoa(limit) + `))
s[0].bind(("192.0.2.1", 7070)); s[0].listen()
time.sleep(1000)`
	p := b.host.Start("python3", "-c", program)
	b.t.Cleanup(p.Stop)
	if err := b.client.WaitTCP(netip.AddrPortFrom(hostAddress, 7070), time.Minute); err != nil {
		b.t.Fatal(err)
	}
}

// TestHealthy: a host that does nothing has nothing, and all of it could be read. That the
// table of another namespace was full is not its illness.
func TestHealthy(t *testing.T) {
	b := newBroken(t)
	b.tracked()
	if err := os.WriteFile("/dev/kmsg", []byte("<7>nf_conntrack: nf_conntrack: table full, dropping packet\n"), 0); err != nil {
		testnet.Lacks(t, "kernel log that can be written", err)
	}
	_, all := b.examine("", 500*time.Millisecond)
	of := []string{"listen-queue", "reverse-path", "udp-buffers", "syn-cookies", "insert-failed", "table-one-source", "table-dead", "drops", "listens-wide", "table-full"}
	for _, f := range all.Findings {
		if slices.Contains(of, f.Check) { // others are of the machine
			t.Errorf("found %+v", f)
		}
	}
	if len(all.Unread) > 0 || all.Checks != len(doctor.Checks()) {
		t.Errorf("%+v", all)
	}
}

// TestManual: every check says all of itself, and its id is its own.
func TestManual(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range doctor.Checks() {
		if seen[c.ID] || c.ID == "" || c.What == "" || c.Why == "" || c.Fix == "" || c.Undo == "" || c.Least == "" {
			t.Errorf("check %+v", c.ID)
		}
		seen[c.ID] = true
		if found, _ := doctor.Explain(c.ID); found == nil || found.Text() == "" {
			t.Errorf("%s has no explanation", c.ID)
		}
	}
	if c, near := doctor.Explain("table-ful"); c != nil || near != "table-full" {
		t.Errorf("%v, near %q", c, near)
	}
}
