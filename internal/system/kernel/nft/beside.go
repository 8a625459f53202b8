package nft

import (
	"fmt"
	"hash/fnv"
	"slices"

	"golang.org/x/sys/unix"
)

// Beside tells one state of the chains that are not of some tables from another, in the
// network namespace of the calling thread: which there are, where they hook in, and how
// many rules each has.
func Beside(tables ...string) (uint64, error) {
	sum := fnv.New64a()
	err := dump(unix.NFT_MSG_GETCHAIN, unix.NFPROTO_UNSPEC, sum.Reset, func(attribute func(kind uint16) []byte) {
		if slices.Contains(tables, unix.ByteSliceToString(attribute(unix.NFTA_CHAIN_TABLE))) {
			return
		}
		for _, kind := range []uint16{unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME, unix.NFTA_CHAIN_HOOK, unix.NFTA_CHAIN_POLICY, unix.NFTA_CHAIN_USE, unix.NFTA_CHAIN_HANDLE} {
			text := attribute(kind)
			_, _ = sum.Write(append([]byte{byte(len(text))}, text...))
		}
	})
	if err != nil {
		return 0, fmt.Errorf("list the chains of other tools: %w", err)
	}
	return sum.Sum64(), nil
}
