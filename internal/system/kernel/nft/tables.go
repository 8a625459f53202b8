package nft

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Table says whether a table of a family (NFPROTO_INET, …) is there in the network
// namespace of the calling thread, and whether it sleeps (NFT_TABLE_F_DORMANT): the
// kernel asks none of its chains. nft 1.0.6 prints something else for the flags of a
// table in its JSON.
func Table(family uint8, table string) (there, dormant bool, err error) {
	begin := func() { there, dormant = false, false }
	err = dump(unix.NFT_MSG_GETTABLE, int(family), begin, func(attribute func(kind uint16) []byte) {
		if unix.ByteSliceToString(attribute(unix.NFTA_TABLE_NAME)) == table {
			flags := attribute(unix.NFTA_TABLE_FLAGS)
			there, dormant = true, len(flags) == 4 && flags[3]&1 != 0
		}
	})
	if err != nil {
		return false, false, fmt.Errorf("list the tables: %w", err)
	}
	return there, dormant, nil
}

// Tables names the tables of all families in the network namespace of the calling
// thread, each as often as there are families with one of its name. It asks the
// kernel for nothing else, which takes a hundredth of what nft takes.
func Tables() ([]string, error) {
	var names []string
	err := dump(unix.NFT_MSG_GETTABLE, unix.AF_UNSPEC, func() { names = nil }, func(attribute func(kind uint16) []byte) {
		names = append(names, unix.ByteSliceToString(attribute(unix.NFTA_TABLE_NAME)))
	})
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	return names, nil
}
