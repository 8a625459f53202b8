package link

import (
	"strings"
	"testing"

	"sluice/internal/lab/testnet"
)

// TestChanges: what was done before it is asked has changed, once.
func TestChanges(t *testing.T) {
	t.Parallel()
	ns := testnet.New(t).Unnamed("host")
	var c *Changes
	if err := ns.Do(func() (err error) { c, err = NewChanges(); return err }); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.deaf {
		t.Log("this kernel has no IPsec")
	}
	for _, s := range []struct {
		do      string
		changed bool
	}{
		{"ip link show", false},
		{"ip link add d0 type veth peer name d1", true},
		{"ip link set d0 up", true},
		{"ip link set d1 up", true},
		{"ip address add 192.0.2.1/24 dev d0", true},
		{"ip address add 2001:db8::1/64 dev d0 nodad", true},
		{"ip route add 198.51.100.0/24 via 192.0.2.2", false},
		{"ip route add default via 192.0.2.2", true},
		{"ip -6 route add default via 2001:db8::2", true},
		{"ip xfrm policy add dir in src 192.0.2.2 dst 192.0.2.1 tmpl proto esp mode transport", true},
		{"ip link del d0", true},
	} {
		t.Run(s.do, func(t *testing.T) {
			words := strings.Fields(s.do)
			if _, err := ns.Run(words[0], words[1:]...); err != nil {
				if words[1] == "xfrm" {
					testnet.Lacks(t, "ESP", err)
				}
				t.Fatal(err)
			}
			if got := c.Any(); got != (s.changed || c.deaf) {
				t.Errorf("changed %v", got)
			}
			if c.Any() && !c.deaf {
				t.Error("it has changed twice")
			}
		})
	}
}
