package starter_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"sluice/internal/base/testgolden"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/language/starter"
	"sluice/internal/prove/check"
	"sluice/internal/system/host"
)

func addresses(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

// situations are the hosts of the golden files.
func situations() map[string]starter.Situation {
	prefix := netip.MustParsePrefix
	eth := host.Interface{Name: "eth0", Index: 2, Kind: "device", Up: true, Addresses: []netip.Prefix{prefix("198.51.100.1/24"), prefix("2001:db8::1/64"), prefix("fe80::1/64")}}
	lo := host.Interface{Name: "lo", Index: 1, Kind: "device", Up: true, Addresses: []netip.Prefix{prefix("127.0.0.1/8")}}
	every := addresses("0.0.0.0", "::")
	return map[string]starter.Situation{
		"inside": {Facts: host.Facts{Known: true, Interfaces: []host.Interface{eth, lo}}, SSHPorts: []uint16{22}, Listeners: []starter.Listener{{Protocol: "tcp", Port: 22, Addresses: every, Programs: []string{"sshd"}}}},
		"bare":   {Facts: host.Facts{Known: true, Interfaces: []host.Interface{lo}}},
		"server": {
			Facts: host.Facts{
				Known: true, Interfaces: []host.Interface{eth, lo}, DefaultRoute: []string{"eth0"},
				EphemeralFrom: 32768, EphemeralTo: 60999,
				SSHClients: []host.SSHClient{
					{Remote: netip.MustParseAddrPort("203.0.113.9:50000"), Local: netip.MustParseAddrPort("198.51.100.1:2222")},
					{Remote: netip.MustParseAddrPort("203.0.113.9:50001"), Local: netip.MustParseAddrPort("198.51.100.1:2222")},
					{Remote: netip.MustParseAddrPort("[2001:db8:7::9]:50000"), Local: netip.MustParseAddrPort("[2001:db8::1]:22")},
					{Remote: netip.MustParseAddrPort("127.0.0.1:50000"), Local: netip.MustParseAddrPort("127.0.0.1:22")},
				},
				Askers: []host.Asker{
					{Name: "ntpd", Protocol: "udp", Port: 123, Peers: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.123:123"), netip.MustParseAddrPort("[2001:db8::123]:123")}},
					{Name: "odd\nname: x", Protocol: "udp", Port: 500},
				},
				Unread: []string{"legacy iptables: operation not permitted"},
			},
			SSHPorts: []uint16{22, 2222},
			Listeners: []starter.Listener{
				{Protocol: "tcp", Port: 22, Addresses: every, Programs: []string{"sshd"}},
				{Protocol: "tcp", Port: 53, Addresses: addresses("198.51.100.1"), Programs: []string{"named"}},
				{Protocol: "tcp", Port: 80, Addresses: every, Programs: []string{"nginx"}},
				{Protocol: "tcp", Port: 443, Addresses: every, Programs: []string{"nginx"}},
				{Protocol: "tcp", Port: 5432, Addresses: addresses("127.0.0.1", "::1"), Programs: []string{"postgres"}},
				{Protocol: "tcp", Port: 9999, Addresses: every, Programs: []string{"odd\nname: x"}},
				{Protocol: "udp", Port: 53, Addresses: addresses("198.51.100.1"), Programs: []string{"named"}},
				{Protocol: "udp", Port: 68, Addresses: addresses("0.0.0.0"), Programs: []string{"dhclient"}},
				{Protocol: "udp", Port: 123, Addresses: every},
				{Protocol: "udp", Port: 40000, Addresses: every, Programs: []string{"avahi-daemon"}},
				{Protocol: "udp", Port: 51820, Addresses: every, Programs: []string{"WireGuard (wg0)"}, Serves: true},
			},
		},
		"tunnels": {
			Facts: host.Facts{
				Known: true, Interfaces: []host.Interface{eth, lo}, DefaultRoute: []string{"eth0"}, EphemeralFrom: 32768, EphemeralTo: 60999,
				SSHClients: []host.SSHClient{{Remote: netip.MustParseAddrPort("10.8.0.2:50000"), Local: netip.MustParseAddrPort("10.8.0.1:22")}},
				OuterFlows: []host.OuterFlow{
					{Peer: netip.MustParseAddr("10.8.0.2"), Tunnel: "wg0", Protocol: 17, Remote: netip.MustParseAddrPort("203.0.113.9:40000"), Local: netip.MustParseAddrPort("198.51.100.1:51820"), Begins: host.FromOutside},
					{Peer: netip.MustParseAddr("10.8.0.2"), Tunnel: "IPsec", Protocol: 50, Remote: netip.MustParseAddrPort("[2001:db8:7::9]:0"), Local: netip.MustParseAddrPort("[2001:db8::1]:0"), Begins: host.FromOutside},
					{Peer: netip.MustParseAddr("10.8.0.3"), Tunnel: "tun0", Unknown: "no process that can be seen holds it"},
				},
			},
			SSHPorts: []uint16{22},
			Listeners: []starter.Listener{
				{Protocol: "tcp", Port: 22, Addresses: every, Programs: []string{"sshd"}, Serves: true},
				{Protocol: "udp", Port: 51820, Addresses: every, Programs: []string{"WireGuard (wg0)"}, Serves: true},
			},
		},
		"containers": {
			Facts: host.Facts{
				Known: true, DefaultRoute: []string{"eth0"}, Forwarding4: true, Forwarding6: true,
				Interfaces: []host.Interface{
					{Name: "docker0", Index: 3, Kind: "bridge", Up: true, Addresses: []netip.Prefix{prefix("172.17.0.1/16")}},
					eth, lo,
					{Name: "veth1", Index: 5, Kind: "veth", Up: true, Master: "docker0", Addresses: []netip.Prefix{prefix("fe80::5/64")}},
					{Name: "bad\"*", Index: 6, Kind: "veth", Up: true, Addresses: []netip.Prefix{prefix("192.0.2.1/24")}},
				},
				EphemeralFrom: 32768, EphemeralTo: 60999,
				Published: []host.Published{
					{Protocol: "tcp", Port: 80, To: netip.MustParseAddrPort("172.17.0.3:80")},
					{Protocol: "tcp", Port: 8080, To: netip.MustParseAddrPort("172.17.0.2:80")},
				},
			},
			SSHPorts: []uint16{22},
			Listeners: []starter.Listener{
				{Protocol: "tcp", Port: 22, Addresses: every, Programs: []string{"systemd"}},
				{Protocol: "tcp", Port: 8080, Addresses: every, Programs: []string{"docker-proxy"}},
			},
		},
	}
}

// clean resolves and checks a policy as sluice would on the host that it was
// written for.
func clean(t *testing.T, text []byte, facts host.Facts) *resolve.Resolved {
	t.Helper()
	p, err := policy.LoadData("policy.yaml", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	r, err := resolve.Resolve(p, resolve.Options{Facts: facts})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, f := range check.Run(r, facts) {
		t.Errorf("finding: %v\n%s", f, text)
	}
	return r
}

var commented = regexp.MustCompile(`(?m)^(\s*)# (- |zones:|side\d|never-ban|forward:|expect:|  - |  default: drop|  side\d|  rules:|    - )`)

func TestGolden(t *testing.T) {
	for name, s := range situations() {
		t.Run(name, func(t *testing.T) {
			got := starter.Policy(s)
			testgolden.File(t, filepath.Join("testdata", name+".yaml"), got)
			r := clean(t, got, s.Facts)
			for _, rule := range r.Policy.Input.Rules {
				for _, service := range rule.Services {
					for _, m := range service.Matches {
						for _, p := range m.Ports {
							carries := slices.ContainsFunc(s.Facts.OuterFlows, func(o host.OuterFlow) bool {
								return o.Protocol == m.Protocol && p.From == o.Local.Port() && p.From == p.To
							})
							if !carries && (m.Protocol != 6 || p.From != p.To || p.From != 22 && p.From != 2222) {
								t.Errorf("%q is open", rule.Text)
							}
						}
					}
				}
			}
			if again, err := policy.Format("policy.yaml", got); err != nil || string(again) != string(got) {
				t.Errorf("sluice fmt changes it (%v):\n%s", err, cmp.Diff(string(got), string(again)))
			}
			// Each line that is commented out is one that can be taken in.
			open := commented.ReplaceAll(got, []byte("$1$2"))
			if _, err := policy.LoadData("policy.yaml", open); err != nil {
				t.Errorf("with all comments removed: %v\n%s", err, open)
			}
		})
	}
}

// What really listens, with real sockets and a real session.
func TestDescribe(t *testing.T) {
	t.Setenv("SSH_CONNECTION", "")
	n := testnet.New(t)
	h, peer := n.Namespace("start"), n.Namespace("peer")
	n.Join(testnet.End{In: h, Device: "wan0", Addresses: []string{"192.0.2.2/24", "2001:db8::2/64"}},
		testnet.End{In: peer, Device: "up0", Addresses: []string{"192.0.2.1/24", "2001:db8::1/64"}})
	h.Route("default4", "192.0.2.1")
	keep := func(c interface{ Close() error }, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	err := h.Do(func() error {
		for _, at := range []string{":22", "192.0.2.2:8081", "127.0.0.1:5432", "[::1]:5433"} {
			keep(net.Listen("tcp", at))
		}
		keep(net.ListenPacket("udp", ":5300"))
		keep(net.ListenPacket("udp", ":45300"))
		// The same port by TCP is a server's, and so is one that sockets share.
		keep(net.ListenPacket("udp", ":45301"))
		keep(net.Listen("tcp", ":45301"))
		shared := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		}}
		keep(shared.ListenPacket(t.Context(), "udp4", "0.0.0.0:45302"))
		keep(shared.ListenPacket(t.Context(), "udp4", "0.0.0.0:45302"))
		// A program that asks others waits for nobody.
		keep(net.Dial("udp", "192.0.2.1:53"))
		keep(net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP("192.0.2.2"), Port: 123}, &net.UDPAddr{IP: net.ParseIP("192.0.2.1"), Port: 123}))
		keep(net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP("2001:db8::2"), Port: 123}, &net.UDPAddr{IP: net.ParseIP("2001:db8::1"), Port: 123}))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	session, err := peer.Dial(t.Context(), "tcp", "[2001:db8::2]:22")
	keep(session, err)
	caller := session.LocalAddr().(*net.TCPAddr)
	t.Setenv("SSH_CONNECTION", fmt.Sprintf("%s %d 2001:db8::2 22", caller.IP, caller.Port))

	var s starter.Situation
	if err := h.Do(func() (err error) {
		s, err = starter.Describe(t.Context())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	text := starter.Policy(s)
	own, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	me := strings.TrimSpace(string(own))
	for _, want := range []string{
		"  wan: { interfaces: [default-route] } # currently wan0\n",
		"  admins: [\"2001:db8::1\"] # logged in",
		"    - allow ssh # " + me + " listens on every address\n",
		"    # - allow ssh from admins #",
		"    # - allow tcp/8081 # " + me + " listens on 192.0.2.2\n",
		"    # - allow udp/5300 # " + me + " listens on every address\n",
		"    # - allow udp/45300 # " + me + " listens on every address; a server?\n",
		"    # - allow udp/45301 # " + me + " listens on every address\n",
		"    # - allow udp/45302 # " + me + " listens on every IPv4 address\n",
		"    #   postgresql, " + me + " listens on 127.0.0.1\n",
		"    #   tcp/5433, " + me + " listens on ::1\n",
		"    #   ntp, " + me + " sends to 192.0.2.1, 2001:db8::1\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the policy lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "udp/53 ") || strings.Contains(string(text), "allow dns") {
		t.Errorf("a socket that asks others is taken for a service:\n%s", text)
	}
	r := clean(t, text, s.Facts)

	// What init says of a bypass is what check finds of it.
	bypassed, err := policy.LoadData("policy.yaml", append(text, "tracking: { bypass: [ntp] }\n"...))
	if err != nil {
		t.Fatal(err)
	}
	resolved, err := resolve.Resolve(bypassed, resolve.Options{Facts: s.Facts})
	if err != nil {
		t.Fatal(err)
	}
	if found := check.Run(resolved, s.Facts); !slices.ContainsFunc(found, func(f check.Finding) bool {
		return f.Code == check.RepliesCut && strings.Contains(f.Message, "192.0.2.1 of "+me) && strings.Contains(f.Message, "2001:db8::1 of "+me)
	}) {
		t.Errorf("check finds of the bypass only %v", found)
	}

	// A new connection of the one who is logged in has a rule.
	if len(s.Facts.SSHClients) != 1 {
		t.Fatalf("ssh peers %v", s.Facts.SSHClients)
	}
	rules := r.Policy.Input.Rules
	if len(rules) != 1 || rules[0].Action != policy.Allow || rules[0].From != nil || rules[0].Services[0].Text != "ssh" {
		t.Errorf("rules are %+v", rules)
	}
}

// The sockets of the kernel's own tunnels have no process, and ports that it gives to
// clients too.
func TestTunnelsListen(t *testing.T) {
	t.Setenv("SSH_CONNECTION", "")
	devices := map[string][]string{
		"vxlan (vx0)":     {"vx0", "type", "vxlan", "id", "7", "dstport", "45303", "local", "192.0.2.2"},
		"WireGuard (wg0)": {"wg0", "type", "wireguard"},
	}
	has := func(name string) testnet.Feature {
		return testnet.Probed(strings.Fields(name)[0], func() error {
			n, err := testnet.Create("feature")
			if err != nil {
				return err
			}
			defer n.Close()
			_, err = n.Unnamed("probe").Run("ip", append([]string{"link", "add"}, devices[name]...)...)
			return err
		})
	}
	for name, device := range devices {
		t.Run(device[2], func(t *testing.T) {
			if has("WireGuard (wg0)").Ask() == nil && has(name).Ask() != nil {
				t.Skip("this machine has WireGuard, which shows the same")
			}
			testnet.Require(t, has(name))
			h := testnet.New(t).Unnamed("host")
			h.MustRun("ip", "address", "add", "192.0.2.2/24", "dev", "lo")
			h.MustRun("ip", append([]string{"link", "add"}, device...)...)
			var s starter.Situation
			err := h.Do(func() error {
				if device[2] == "wireguard" {
					c, err := wgctrl.New()
					if err != nil {
						return err
					}
					defer c.Close()
					if err := c.ConfigureDevice("wg0", wgtypes.Config{ListenPort: new(45303)}); err != nil {
						return err
					}
				}
				h.MustRun("ip", "link", "set", device[0], "up")
				var err error
				s, err = starter.Describe(t.Context())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if want, text := "    # - allow udp/45303 # "+name+" listens on ", string(starter.Policy(s)); !strings.Contains(text, want) || strings.Contains(text, "a server?") {
				t.Errorf("the policy lacks %q:\n%s", want, text)
			}
		})
	}
}
