package host_test

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/host"
)

// describe reads the facts inside a namespace.
func describe(t *testing.T, s *testnet.Namespace) host.Facts {
	t.Helper()
	var facts host.Facts
	err := s.Do(func() (err error) {
		facts, err = host.Describe(context.Background(), host.OwnSession())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(facts.Unread) > 0 {
		t.Errorf("not read: %q", facts.Unread)
	}
	return facts
}

func iface(t *testing.T, f host.Facts, name string) host.Interface {
	t.Helper()
	for _, i := range f.Interfaces {
		if i.Name == name {
			return i
		}
	}
	t.Fatalf("no interface %s in %v", name, f.Interfaces)
	return host.Interface{}
}

func TestDescribeLinks(t *testing.T) {
	n := testnet.New(t)
	h, peer := n.Namespace("facts"), n.Namespace("peer")
	n.Join(testnet.End{In: h, Device: "wan0", Addresses: []string{"192.0.2.2/24", "2001:db8::2/64"}},
		testnet.End{In: peer, Device: "up0", Addresses: []string{"192.0.2.1/24", "2001:db8::1/64"}})
	inside, _ := n.Join(testnet.End{In: h, Device: "tap0"}, testnet.End{In: peer, Device: "vm0"})
	h.Bridge("br0", []string{"198.51.100.1/24", "198.51.100.9/24", "198.51.100.5/24"}, inside)

	bare := describe(t, h)
	if len(bare.DefaultRoute) != 0 {
		t.Errorf("default route before there is one: %v", bare.DefaultRoute)
	}
	if bare.Forwarding4 || bare.Forwarding6 {
		t.Error("forwards before it is told to")
	}

	h.Sysctl("net.ipv4.conf.wan0.forwarding", "1")
	if f := describe(t, h); !f.Forwarding4 || f.Forwarding6 || f.ForwardingUnread {
		t.Errorf("one device forwards IPv4: %v %v, unread %v", f.Forwarding4, f.Forwarding6, f.ForwardingUnread)
	}

	h.Route("default4", "192.0.2.1")
	h.Route("default6", "2001:db8::1")
	h.Forward()
	h.Sysctl("net.ipv4.ip_local_port_range", "40000 50000")
	h.Own("203.0.113.0/25")
	if bare.NonLocalBind {
		t.Error("foreign addresses may be bound before they may")
	}
	h.Sysctl("net.ipv6.ip_nonlocal_bind", "1")
	f := describe(t, h)

	if !f.Known || f.Namespace != h.Name() {
		t.Errorf("known %v, namespace %q, want true and %q", f.Known, f.Namespace, h.Name())
	}
	if want := []string{"wan0"}; !reflect.DeepEqual(f.DefaultRoute, want) {
		t.Errorf("default route by %v, want %v", f.DefaultRoute, want)
	}
	if !f.Forwarding4 || !f.Forwarding6 {
		t.Errorf("forwarding %v %v, want both on", f.Forwarding4, f.Forwarding6)
	}
	if f.EphemeralFrom != 40000 || f.EphemeralTo != 50000 {
		t.Errorf("ephemeral ports %d-%d, want 40000-50000", f.EphemeralFrom, f.EphemeralTo)
	}
	for _, want := range []string{"203.0.113.0/25", "192.0.2.2/32", "127.0.0.0/8", "2001:db8::2/128"} {
		if !contains(f.Local, netip.MustParsePrefix(want)) {
			t.Errorf("local prefixes %v lack %s", f.Local, want)
		}
	}
	if !f.NonLocalBind {
		t.Error("the right to bind foreign addresses is not seen")
	}
	if f.MemoryBytes == 0 {
		t.Error("no memory")
	}
	wan := iface(t, f, "wan0")
	for _, want := range []string{"192.0.2.2/24", "2001:db8::2/64"} {
		if !contains(wan.Addresses, netip.MustParsePrefix(want)) {
			t.Errorf("addresses of wan0: %v lack %s", wan.Addresses, want)
		}
	}
	if wan.Kind != "veth" || !wan.Up || wan.Master != "" {
		t.Errorf("wan0: kind %q up %v master %q", wan.Kind, wan.Up, wan.Master)
	}
	if tap := iface(t, f, "tap0"); tap.Master != "br0" {
		t.Errorf("tap0: master %q, want br0", tap.Master)
	}
	br := iface(t, f, "br0")
	if br.Kind != "bridge" {
		t.Errorf("br0: kind %q", br.Kind)
	}
	kept := func(list []netip.Prefix) (out []string) {
		for _, p := range list {
			if p.Addr().Is4() {
				out = append(out, p.Addr().String())
			}
		}
		return out
	}
	if got, want := kept(br.InOrder()), []string{"198.51.100.1", "198.51.100.9", "198.51.100.5"}; !slices.Equal(got, want) {
		t.Errorf("br0: addresses in the kernel's order %v, want %v", got, want)
	}
	if got, want := kept(br.Addresses), []string{"198.51.100.1", "198.51.100.5", "198.51.100.9"}; !slices.Equal(got, want) {
		t.Errorf("br0: addresses %v, want %v", got, want)
	}

	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var again host.Facts
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(f, again) {
		t.Errorf("facts changed on the way through JSON:\n%+v\n%+v", f, again)
	}
}

func contains(list []netip.Prefix, want netip.Prefix) bool {
	for _, p := range list {
		if p == want {
			return true
		}
	}
	return false
}

func TestDescribeSSHPeers(t *testing.T) {
	t.Setenv("SSH_CONNECTION", "")
	n := testnet.New(t)
	h, peer := n.Namespace("facts"), n.Namespace("peer")
	n.Join(testnet.End{In: h, Device: "wan0", Addresses: []string{"192.0.2.2/24"}},
		testnet.End{In: peer, Device: "up0", Addresses: []string{"192.0.2.1/24"}})
	accepted := make(chan struct{})
	// Port 22 without a process called sshd, and dual-stack, so that the kernel
	// shows the peer in IPv4-mapped notation.
	listen := func(port string) {
		err := h.Do(func() error {
			l, err := net.Listen("tcp", ":"+port)
			if err != nil {
				return err
			}
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					t.Cleanup(func() { c.Close() })
					accepted <- struct{}{}
				}
			}()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	listen("22")
	listen("80")
	var locals []netip.AddrPort
	for _, port := range []string{"22", "80"} {
		c, err := peer.Dial(t.Context(), "tcp", "192.0.2.2:"+port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		<-accepted // the client is done before the server's socket is
		locals = append(locals, netip.MustParseAddrPort(c.LocalAddr().String()))
	}
	// Nobody can tell whether that is a session: it exempts from no ban.
	want := []host.SSHClient{{Remote: locals[0], Local: netip.MustParseAddrPort("192.0.2.2:22"), Unproved: true}}
	facts := describe(t, h)
	if got := facts.SSHClients; !reflect.DeepEqual(got, want) {
		t.Errorf("ssh peers %v, want %v", got, want)
	}
	if got := facts.Exempt(); slices.Contains(got, netip.MustParseAddr("192.0.2.1")) {
		t.Errorf("exempt by connecting: %v", got)
	}

	// The session of the caller counts where its local address is the host's.
	t.Setenv("SSH_CONNECTION", "203.0.113.9 50000 192.0.2.2 2222")
	want = append(want, host.SSHClient{Remote: netip.MustParseAddrPort("203.0.113.9:50000"), Local: netip.MustParseAddrPort("192.0.2.2:2222")})
	if got := describe(t, h).SSHClients; !reflect.DeepEqual(got, want) {
		t.Errorf("with a session: ssh peers %v, want %v", got, want)
	}
	if got := describe(t, peer).SSHClients; len(got) != 0 {
		t.Errorf("another host has the session's peers: %v", got)
	}
}

func TestDescribeForeign(t *testing.T) {
	testnet.Require(t, testnet.Nftables)
	n := testnet.New(t)
	h := n.Namespace("facts")
	if f := describe(t, h); len(f.ForeignChains)+len(f.Published) != 0 || f.ForeignOutputNAT {
		t.Errorf("an empty ruleset gives %+v", f)
	}
	h.Nft(`
table inet sluice {
	chain input { type filter hook input priority 0; policy drop; }
	chain output_nat { type nat hook output priority -100; }
}
table ip other {
	map ways { type inet_service : verdict; elements = { 22 : drop, 80 : jump web } ; }
	map doors { type inet_service : ipv4_addr . inet_service; elements = { 5022 : 10.0.0.9 . 22 } ; }
	set open { type inet_service; elements = { 7000 } ; }
	chain web { dnat to 10.0.0.80 ; }
	chain docker { iifname != "docker0" tcp dport 8080 counter dnat to 172.17.0.2:80 ; }
	chain pre {
		type nat hook prerouting priority -100;
		fib daddr type local jump docker
		tcp dport { 81, 90-92 } dnat to 10.0.0.1
		tcp dport vmap @ways
		dnat ip addr . port to udp dport map @doors
		ip daddr 198.51.100.1 tcp dport 25 dnat to 10.0.0.7
		ip daddr 127.0.0.1 tcp dport 26 dnat to 10.0.0.7
		meta l4proto { tcp, udp } th dport 53 redirect to :5353
		tcp dport @open dnat to 10.0.0.70
	}
	chain out { type nat hook output priority -100; }
	chain quiet { type filter hook input priority 10; counter accept; }
	chain strict { type filter hook forward priority 10; ct state new goto away ; }
	chain away { reject ; }
}
`)
	f := describe(t, h)
	if !f.ForeignOutputNAT {
		t.Error("the NAT chain at output is not seen")
	}
	drops, rewrites := map[string]bool{}, map[string]bool{}
	for _, c := range f.ForeignChains {
		if c.Table == "sluice" {
			t.Errorf("own chain listed as foreign: %+v", c)
		}
		drops[c.Name], rewrites[c.Name] = c.Drops, c.Rewrites
	}
	// pre counts as dropping by the verdict map.
	if want := map[string]bool{"pre": true, "out": false, "quiet": false, "strict": true}; !reflect.DeepEqual(drops, want) {
		t.Errorf("what may drop: %v, want %v", drops, want)
	}
	if want := map[string]bool{"pre": true, "out": false, "quiet": false, "strict": false}; !reflect.DeepEqual(rewrites, want) {
		t.Errorf("what may rewrite: %v, want %v", rewrites, want)
	}
	checkPublished(t, f, []string{
		"tcp/25 of 198.51.100.1 to 10.0.0.7",
		"tcp/53",
		"tcp/80 to 10.0.0.80",
		"tcp/81 to 10.0.0.1",
		"tcp/90 to 10.0.0.1",
		"tcp/91 to 10.0.0.1",
		"tcp/92 to 10.0.0.1",
		"tcp/7000 to 10.0.0.70",
		"tcp/8080 to 172.17.0.2:80",
		"udp/53",
		"udp/5022 to 10.0.0.9:22",
	})
}

func checkPublished(t *testing.T, f host.Facts, want []string) {
	t.Helper()
	var got []string
	for _, p := range f.Published {
		got = append(got, p.String())
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("published:\n%q\nwant\n%q", got, want)
	}
}

// What a container engine writes through iptables, over nftables and legacy.
func TestDescribeContainerEngine(t *testing.T) {
	for _, variant := range []string{"nft", "legacy"} {
		t.Run(variant, func(t *testing.T) {
			ip4, ip6 := "iptables-"+variant, "ip6tables-"+variant
			testnet.Require(t, testnet.Program(ip4), testnet.Program(ip6), testnet.Program(ip4+"-save"))
			if variant == "legacy" {
				testnet.Require(t, testnet.IPTablesLegacy("nat"), testnet.IPTablesLegacy("filter"))
			}
			n := testnet.New(t)
			h := n.Namespace("facts")
			for _, args := range [][]string{
				{ip4, "-t", "nat", "-N", "DOCKER"},
				{ip4, "-t", "nat", "-A", "PREROUTING", "-m", "addrtype", "--dst-type", "LOCAL", "-j", "DOCKER"},
				{ip4, "-t", "nat", "-A", "OUTPUT", "!", "-d", "127.0.0.0/8", "-m", "addrtype", "--dst-type", "LOCAL", "-j", "DOCKER"},
				{ip4, "-t", "nat", "-A", "DOCKER", "!", "-i", "docker0", "-p", "tcp", "-m", "tcp", "--dport", "8080", "-m", "comment", "--comment", "a web \"site\"", "-j", "DNAT", "--to-destination", "172.17.0.2:80"},
				{ip4, "-t", "nat", "-A", "DOCKER", "-d", "127.0.0.1/32", "-p", "tcp", "--dport", "9", "-j", "DNAT", "--to-destination", "172.17.0.2:9"},
				{ip4, "-t", "nat", "-A", "DOCKER", "-p", "udp", "-m", "multiport", "--dports", "60,70:71", "-j", "DNAT", "--to-destination", "172.17.0.3"},
				{ip6, "-t", "nat", "-A", "PREROUTING", "-d", "2001:db8::1/128", "-p", "tcp", "--dport", "8443", "-j", "DNAT", "--to-destination", "[2001:db8:1::2]:443"},
				{ip4, "-A", "FORWARD", "-i", "docker0", "-j", "REJECT"},
				{ip4, "-A", "INPUT", "-j", "ACCEPT"},
			} {
				h.MustRun(args[0], args[1:]...)
			}
			f := describe(t, h)
			if !f.ForeignOutputNAT {
				t.Error("the NAT chain at output is not seen")
			}
			checkPublished(t, f, []string{
				"tcp/8080 to 172.17.0.2:80",
				"tcp/8443 of 2001:db8::1 to [2001:db8:1::2]:443",
				"udp/60 to 172.17.0.3",
				"udp/70 to 172.17.0.3",
				"udp/71 to 172.17.0.3",
			})
			for _, c := range f.ForeignChains {
				if c.Legacy != (variant == "legacy") {
					t.Errorf("%s %s: legacy %v", c.Table, c.Name, c.Legacy)
				}
				if want := c.Table == "filter" && c.Hook == "forward"; c.Drops != want {
					t.Errorf("%s %s: may drop %v, want %v", c.Table, c.Name, c.Drops, want)
				}
			}
		})
	}
}
