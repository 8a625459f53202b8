package link

import (
	"strings"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
)

// TestChanges: what matters is told of, and nothing else.
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
		{"ip link set lo mtu 60000", true},
		{"ip address add 192.0.2.1/24 dev lo", true},
		{"ip route add 198.51.100.0/24 dev lo", false},
		{"ip route add default dev lo", true},
		{"ip route del default", true},
		{"ip link show", false},
		{"ip xfrm policy add dir in src 192.0.2.2 dst 192.0.2.1 tmpl proto esp mode transport", true},
		{"ip -6 route add default dev lo", true},
		{"ip address add 2001:db8::1/64 dev lo nodad", true},
	} {
		t.Run(s.do, func(t *testing.T) {
			words := strings.Fields(s.do)
			if _, err := ns.Run(words[0], words[1:]...); err != nil {
				if words[1] == "xfrm" {
					testnet.Lacks(t, "ESP", err)
				}
				t.Fatal(err)
			}
			got := c.Any()
			for until := time.Now().Add(time.Minute); s.changed && !got && time.Now().Before(until); got = c.Any() {
				time.Sleep(time.Millisecond) // of IPv6 it is told later
			}
			if got != (s.changed || c.deaf) {
				t.Errorf("changed %v", got)
			}
		})
	}
}
