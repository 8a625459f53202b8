package nft

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Named is a table of a family (NFPROTO_INET, …).
type Named struct {
	Family  uint8
	Name    string
	Dormant bool // it sleeps (NFT_TABLE_F_DORMANT): the kernel asks none of its chains
}

// Families are the words that nft has for families of tables.
var Families = map[uint8]string{
	unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6",
	unix.NFPROTO_ARP: "arp", unix.NFPROTO_BRIDGE: "bridge", unix.NFPROTO_NETDEV: "netdev",
}

// Table says whether a table of a family (NFPROTO_INET, …) is there in the network
// namespace of the calling thread, and whether it sleeps. nft 1.0.6 prints something else
// for the flags of a table in its JSON.
func Table(family uint8, table string) (there, dormant bool, err error) {
	all, err := tables(int(family))
	i := slices.IndexFunc(all, func(t Named) bool { return t.Name == table })
	return i >= 0, i >= 0 && all[i].Dormant, err
}

// Tables gives the tables of all families in the network namespace of the calling thread.
// It asks the kernel for nothing else, which takes a hundredth of what nft takes.
func Tables() ([]Named, error) { return tables(unix.AF_UNSPEC) }

func tables(family int) (all []Named, err error) {
	err = dumpOf(unix.NFT_MSG_GETTABLE, family, func() { all = nil }, func(family uint8, attribute func(kind uint16) []byte) {
		flags := attribute(unix.NFTA_TABLE_FLAGS)
		all = append(all, Named{family, unix.ByteSliceToString(attribute(unix.NFTA_TABLE_NAME)), len(flags) == 4 && flags[3]&1 != 0})
	})
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	return all, nil
}
