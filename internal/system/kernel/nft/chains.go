package nft

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// From include/uapi/linux/netfilter/nf_tables.h.
const (
	listChains   = 4 // NFT_MSG_GETCHAIN
	ofTable      = 1 // NFTA_CHAIN_TABLE
	nameOfChain  = 3 // NFTA_CHAIN_NAME
	protocolInet = 1 // NFPROTO_INET
)

// Chains names the chains of a table of family inet in the network namespace of
// the calling thread; there are none where there is no such table. It asks the
// kernel for nothing else, which takes a hundredth of what nft takes.
func Chains(table string) ([]string, error) {
	var names []string
	err := dump(listChains, protocolInet, func() { names = nil }, func(attribute func(kind uint16) []byte) {
		if unix.ByteSliceToString(attribute(ofTable)) == table {
			names = append(names, unix.ByteSliceToString(attribute(nameOfChain)))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list the chains of table inet %s: %w", table, err)
	}
	return names, nil
}
