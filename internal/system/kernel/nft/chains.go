package nft

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Chains names the chains of a table of family inet in the network namespace of
// the calling thread; there are none where there is no such table. It asks the
// kernel for nothing else, which takes a hundredth of what nft takes.
func Chains(table string) ([]string, error) {
	var names []string
	err := dump(unix.NFT_MSG_GETCHAIN, unix.NFPROTO_INET, func() { names = nil }, func(attribute func(kind uint16) []byte) {
		if unix.ByteSliceToString(attribute(unix.NFTA_CHAIN_TABLE)) == table {
			names = append(names, unix.ByteSliceToString(attribute(unix.NFTA_CHAIN_NAME)))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list the chains of table inet %s: %w", table, err)
	}
	return names, nil
}

// Chain is one chain of a ruleset.
type Chain struct {
	Family   uint8 // NFPROTO_*
	Table    string
	Name     string
	Base     bool
	NAT      bool   // of type nat
	Hook     uint32 // of a base chain: NF_INET_*, NF_NETDEV_* by family
	Priority int32
}

// AllChains gives the chains of all tables in the network namespace of the calling
// thread, in the kernel's order.
func AllChains() (all []Chain, err error) {
	err = dumpOf(unix.NFT_MSG_GETCHAIN, unix.NFPROTO_UNSPEC, func() { all = nil }, func(family uint8, attribute func(kind uint16) []byte) {
		c := Chain{Family: family, Table: unix.ByteSliceToString(attribute(unix.NFTA_CHAIN_TABLE)), Name: unix.ByteSliceToString(attribute(unix.NFTA_CHAIN_NAME))}
		if hook := attribute(unix.NFTA_CHAIN_HOOK); len(hook) > 0 {
			c.Base, c.NAT = true, unix.ByteSliceToString(attribute(unix.NFTA_CHAIN_TYPE)) == "nat"
			c.Hook = word(hook, unix.NFTA_HOOK_HOOKNUM)
			c.Priority = int32(word(hook, unix.NFTA_HOOK_PRIORITY)) //nolint:gosec // the kernel's own sign
		}
		all = append(all, c)
	})
	if err != nil {
		return nil, fmt.Errorf("list the chains: %w", err)
	}
	return all, nil
}

func word(data []byte, kind uint16) uint32 {
	if value, _ := attribute(data, kind); len(value) == 4 {
		return binary.BigEndian.Uint32(value)
	}
	return 0
}
