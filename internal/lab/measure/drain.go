package measure

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/nft"
)

// drain is where packets end that the rules under test let through: at priority
// 1000 of input and of postrouting, where a new connection is not yet known, so that
// each of its packets is new again; or, of a traffic that goes through (Traffic.
// Through), behind connection tracking: at the last priority of input, where the
// kernel confirms a connection (ipv4_conntrack_ops in nf_conntrack_proto.c; of two
// hooks of one priority the one that was there first comes last, nf_hook_entries_grow
// in net/netfilter/core.c), and at the egress of the device. So a packet that takes
// a flowtable's short way is counted too. What the host itself sends (answers of
// reject) ends at the egress, uncounted.
//
// Which packet is which its hop limit says: rules leave it alone. A packet with
// another one is not part of the traffic (what the lab's addresses say to each other,
// neighbour discovery): it is dropped, and not counted.
type drain struct{ in *testnet.Namespace }

// Hop limits of what is sent. Hosts send with 64.
const (
	hopsNew     = 62
	hopsThrough = 99
)

func (d *drain) load(l *Lab) error {
	var text strings.Builder
	fmt.Fprintf(&text, `table inet measure {
	counter survived { }
	chain input {
		type filter hook input priority 1000; policy drop;
		ip ttl %[1]d counter name survived drop
		ip6 hoplimit %[1]d counter name survived drop
		ip ttl %[3]d accept
		ip6 hoplimit %[3]d accept
	}
	chain known {
		type filter hook input priority 2147483647; policy drop;
		ip ttl %[3]d counter name survived
		ip6 hoplimit %[3]d counter name survived
	}
	chain forwarded {
		type filter hook postrouting priority 1000; policy accept;
		ip ttl %[2]d counter name survived drop
		ip6 hoplimit %[2]d counter name survived drop
	}
}
table netdev measure {
	counter survived { }
`, hopsNew, hopsNew-1, hopsThrough)
	for i, p := range l.ports {
		fmt.Fprintf(&text, `	chain out%d {
		type filter hook egress device "%s" priority 1000; policy drop;
		ip ttl %[3]d counter name survived
		ip6 hoplimit %[3]d counter name survived
	}
`, i, p.name, hopsThrough-1)
	}
	text.WriteString("}\n")
	d.in = l.Namespace
	return l.Nft(text.String())
}

// survived is how many packets have been counted since the lab was made.
func (d *drain) survived() (sum uint64, err error) {
	err = d.in.Do(func() error {
		for _, family := range []int{unix.NFPROTO_INET, unix.NFPROTO_NETDEV} {
			n, err := nft.Counted(family, "measure", "survived")
			if err != nil {
				return err
			}
			sum += n
		}
		return nil
	})
	return sum, err
}
