package link

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
)

// uplinks makes a host with three uplinks, up0 to up2.
func uplinks(t *testing.T) *testnet.Namespace {
	t.Helper()
	testnet.Require(t, testnet.Namespaces)
	ns := testnet.New(t).Unnamed("host")
	for i := range 3 {
		up := fmt.Sprintf("up%d", i)
		ns.MustRun("ip", "link", "add", up, "type", "veth", "peer", "name", fmt.Sprintf("far%d", i))
		ns.MustRun("ip", "link", "set", up, "up")
		ns.MustRun("ip", "link", "set", fmt.Sprintf("far%d", i), "up")
		ns.MustRun("ip", "addr", "add", fmt.Sprintf("192.0.2.%d/28", i*16+1), "dev", up)
		ns.Address(up, fmt.Sprintf("2001:db8:%d::1/64", i))
	}
	return ns
}

// TestDefaultRoutes has default routes of all kinds among what looks like one.
func TestDefaultRoutes(t *testing.T) {
	t.Parallel()
	const others = `route add 0.0.0.0/1 dev up2
route add 0.0.0.0/8 dev up2
route add 128.0.0.0/1 dev up2
-6 route add ::/1 dev up2
route add default dev up2 table 100
-6 route add default dev up2 table 100
route add default dev up2 table 1000
route add unreachable default metric 9
-6 route add unreachable default metric 4000
`
	for routes, want := range map[string]string{
		"":                                       "[] []",
		"route add default via 192.0.2.2":        "[up0] [192.0.2.2]",
		"-6 route add default via 2001:db8:1::2": "[up1] [2001:db8:1::2]",
		"route add default dev up1":              "[up1] []",
		"route add default via 192.0.2.2\nroute add default via 192.0.2.18 metric 7":                  "[up0 up1] [192.0.2.2 192.0.2.18]",
		"route add default nexthop via 192.0.2.2 nexthop via 192.0.2.18 nexthop dev up0":              "[up0 up1] [192.0.2.2 192.0.2.18]",
		"-6 route add default nexthop via 2001:db8:0::2 nexthop via 2001:db8:1::2":                    "[up0 up1] [2001:db8::2 2001:db8:1::2]",
		"route add default via inet6 2001:db8:1::2":                                                   "[up1] [2001:db8:1::2]",
		"nexthop add id 1 via 192.0.2.2 dev up0\nroute add default nhid 1":                            "[up0] [192.0.2.2]",
		"route add default via 192.0.2.2\n-6 route add default via 2001:db8:1::2 dev up1 metric 2000": "[up0 up1] [192.0.2.2 2001:db8:1::2]",
	} {
		t.Run(routes, func(t *testing.T) {
			t.Parallel()
			ns := uplinks(t)
			for line := range strings.Lines(others + routes) {
				ns.MustRun("ip", strings.Fields(line)...)
			}
			err := ns.Do(func() error {
				links, err := List()
				if err != nil {
					return err
				}
				indices, err := DefaultRoutes()
				if err != nil {
					return err
				}
				gateways, err := Gateways()
				if err != nil {
					return err
				}
				names := []string{}
				for _, l := range links {
					if slices.Contains(indices, l.Index) {
						names = append(names, l.Name)
					}
				}
				slices.Sort(names)
				if got := fmt.Sprint(names, gateways); got != want {
					t.Errorf("default routes %s, want %s", got, want)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestMatters listens to the kernel: of routes only default ones are a change.
func TestMatters(t *testing.T) {
	t.Parallel()
	ns := uplinks(t)
	var conn *netlink.Conn
	err := ns.Do(func() (err error) {
		if conn, err = netlink.Dial(unix.NETLINK_ROUTE, nil); err != nil {
			return err
		}
		for _, group := range watched {
			if err := conn.JoinGroup(group); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, c := range []struct {
		change string
		want   bool
	}{
		{"route add 198.51.100.0/24 dev up0", false},
		{"route del 198.51.100.0/24 dev up0", false},
		{"-6 route add 2001:db8:99::/48 dev up0", false},
		{"route add default dev up0", true},
		{"route del default dev up0", true},
		{"-6 route add default dev up0", true},
		{"-6 route del default dev up0", true},
		{"link set up2 mtu 1400", true},
	} {
		ns.MustRun("ip", strings.Fields(c.change)...)
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		messages, err := conn.Receive()
		if err != nil {
			t.Fatalf("%s: %v", c.change, err)
		}
		if got := slices.ContainsFunc(messages, matters); got != c.want {
			t.Errorf("ip %s matters: %v", c.change, got)
		}
	}
}
