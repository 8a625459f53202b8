package link

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// TestRoutingByRules has rules of policy routing by source, device, mark and port send
// packets and answers another way than their destination alone, in both families.
func TestRoutingByRules(t *testing.T) {
	t.Parallel()
	ns := uplinks(t)
	ns.Forward()
	const routes = `route add default via 192.0.2.2
-6 route add default via 2001:db8::2
route add default via 192.0.2.18 table 100
-6 route add default via 2001:db8:1::2 table 100
rule add from 192.0.2.33 lookup 100
-6 rule add from 2001:db8:2::1 lookup 100
rule add iif up2 from 10.20.0.0/16 lookup 100
-6 rule add iif up2 from 2001:db8:20::/48 lookup 100
rule add fwmark 7 lookup 100
-6 rule add fwmark 7 lookup 100
route add 10.20.0.0/16 via 192.0.2.34
-6 route add 2001:db8:20::/48 via 2001:db8:2::2
`
	for line := range strings.Lines(routes) {
		ns.MustRun("ip", strings.Fields(line)...)
	}
	type want struct{ in, out string }
	ask := func(r *Routing, source, destination string, mark uint32, port uint16) (w want) {
		l := Lookup{Source: netip.MustParseAddr(source), Destination: netip.MustParseAddr(destination), Mark: mark, Protocol: 6, SourcePort: 40000, Port: port, User: -1}
		var err error
		if w.in, w.out, err = r.Through(l); err != nil {
			t.Errorf("from %s to %s: %v", source, destination, err)
		}
		return w
	}
	all := func(title string, ports bool) {
		t.Helper()
		err := ns.Do(func() error {
			r := NewRouting()
			for _, c := range []struct {
				source, destination string
				mark                uint32
				port                uint16
				want                want
			}{
				// To the host: the way in is that of its answer, by its own address.
				{"203.0.113.9", "192.0.2.1", 0, 22, want{"up0", "lo"}},
				{"203.0.113.9", "192.0.2.33", 0, 22, want{"up1", "lo"}},
				{"2001:db8:7::9", "2001:db8::1", 0, 22, want{"up0", "lo"}},
				{"2001:db8:7::9", "2001:db8:2::1", 0, 22, want{"up1", "lo"}},
				{"203.0.113.9", "192.0.2.1", 7, 22, want{"up1", "lo"}},
				{"2001:db8:7::9", "2001:db8::1", 7, 22, want{"up1", "lo"}},
				// Through it: the answers come in by the way out.
				{"10.20.0.9", "203.0.113.9", 0, 80, want{"up2", "up1"}},
				{"2001:db8:20::9", "2001:db8:7::9", 0, 80, want{"up2", "up1"}},
				{"10.21.0.9", "203.0.113.9", 0, 80, want{"up0", "up0"}},
			} {
				if got := ask(r, c.source, c.destination, c.mark, c.port); got != c.want {
					t.Errorf("%s: from %s to %s port %d mark %d: %+v, want %+v", title, c.source, c.destination, c.port, c.mark, got, c.want)
				}
			}
			for _, source := range []string{"192.0.2.1", "2001:db8::1"} {
				to := "203.0.113.9"
				if strings.Contains(source, ":") {
					to = "2001:db8:7::9"
				}
				for port, device := range map[uint16]string{25: "up1", 26: "up0"} {
					if !ports {
						device = "up0"
					}
					l := Lookup{Source: netip.MustParseAddr(source), Destination: netip.MustParseAddr(to), Protocol: 6, SourcePort: 40000, Port: port, User: -1}
					if got, err := r.Toward(l); got != device || err != nil {
						t.Errorf("%s: to port %d it leaves by %s, %v; want %s", title, port, got, err, device)
					}
					if got, _, err := Way(l); got != device || err != nil {
						t.Errorf("%s: to port %d the way is %s, %v; want %s", title, port, got, err, device)
					}
				}
			}
			if got := RouterToward(Lookup{Source: netip.MustParseAddr("192.0.2.33"), Destination: netip.MustParseAddr("203.0.113.9"), User: -1}); fmt.Sprint(got) != "192.0.2.18" {
				t.Errorf("%s: the router is %s", title, got)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	all("without rules by port", false)
	ns.MustRun("ip", "rule", "add", "ipproto", "tcp", "dport", "25", "lookup", "100")
	ns.MustRun("ip", "-6", "rule", "add", "ipproto", "tcp", "dport", "25", "lookup", "100")
	all("with rules by port", true)
}
