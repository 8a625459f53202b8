package applybench

import (
	"fmt"
	"net/netip"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/policy"
	"sluice/internal/system/kernel/conntrack"
)

// lab is the host of one rival, and a client outside.
type lab struct {
	host    *testnet.Namespace
	outside *testnet.Port // the client's end of the wire to the host
	device  string        // of the host
}

var (
	hostV4, hostV6     = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8:1::1")
	clientV4, clientV6 = netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8:1::2")
	own                = addrset.FromPrefixes(netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8:1::/64"))
)

// deviceOf is the interface that a lab has: the first that the policy names, so that
// what comes in is in a zone.
func deviceOf(p *policy.Policy) string {
	for _, z := range p.Zones {
		for _, i := range z.Interfaces {
			if i.Text != "default-route" && i.Text != "lo" && !strings.HasSuffix(i.Text, "*") {
				return i.Text
			}
		}
	}
	return "eth0"
}

// newLab makes a lab in a net, with the watch and without rules.
func newLab(n *testnet.Net, label, device string) (l *lab, err error) {
	l = &lab{device: device}
	return l, n.Try(func() {
		l.host = n.Namespace(label)
		_, l.outside = n.Wire(
			testnet.End{In: l.host, Device: device, Addresses: []string{hostV4.String() + "/24", hostV6.String() + "/64"}},
			testnet.End{In: n.Unnamed("client"), Device: "eth0", Addresses: []string{clientV4.String() + "/24", clientV6.String() + "/64"}},
		)
		l.host.Route("default4", clientV4.String())
		l.host.Route("default6", clientV6.String())
		l.host.Nft(watchTable())
	})
}

// tables are those of nf_tables in the lab, the watch apart, as nft names them.
func (l *lab) tables() (out []string, err error) {
	text, err := l.host.Run("nft", "list", "tables")
	for line := range strings.Lines(text) {
		if name := strings.TrimSpace(strings.TrimPrefix(line, "table ")); name != "" && name != watchName {
			out = append(out, name)
		}
	}
	return out, err
}

// empty deletes every table but the watch.
func (l *lab) empty() error {
	list, err := l.tables()
	if err != nil {
		return err
	}
	for _, name := range list {
		if _, err := l.host.Run("nft", append([]string{"delete", "table"}, strings.Fields(name)...)...); err != nil {
			return err
		}
	}
	return nil
}

// connect puts the established flows into the lab's connection table.
func (l *lab) connect(flows []flow) error {
	return l.host.Do(func() error {
		for _, f := range flows {
			if f.class != established {
				continue
			}
			err := conntrack.Create(conntrack.Flow{Protocol: f.protocol, Answered: true, Original: conntrack.Tuple{
				Source: f.from.Addr(), Destination: f.to.Addr(), SourcePort: f.from.Port(), DestinationPort: f.to.Port(),
			}})
			if err != nil {
				return fmt.Errorf("make a connection from %s to %s: %w", f.from, f.to, err)
			}
		}
		return nil
	})
}

// watchName is the table of the watch: counters before every hook of a rival and
// behind its last one.
const watchName = "inet watch"

// Counters of the watch.
const before, behind = "before", "behind"

func counter(side string, c class) string { return side + "_" + c.String() }

// watchTable counts flows by their source port, which tells their class. What has
// come through ends there, so that neither a socket nor an answer costs anything, and
// what repeats stays new.
func watchTable() string {
	var b strings.Builder
	b.WriteString("table " + watchName + " {\n")
	var maps [2]string
	for i, side := range []string{before, behind} {
		for c := range classes {
			fmt.Fprintf(&b, "\tcounter %s { }\n", counter(side, c))
			maps[i] += fmt.Sprintf("%d : %q, ", c.sourcePort(), counter(side, c))
		}
	}
	fmt.Fprintf(&b, `	chain first {
		type filter hook prerouting priority -450; policy accept;
		meta l4proto { tcp, udp } counter name th sport map { %s}
	}
	chain last {
		type filter hook input priority 450; policy accept;
		meta l4proto { tcp, udp } counter name th sport map { %s}
		meta l4proto { tcp, udp } th sport %d-%d drop
	}
}
`, maps[0], maps[1], class(0).sourcePort(), (classes - 1).sourcePort())
	return b.String()
}
