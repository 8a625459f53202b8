package nftables

import (
	"context"
	"strings"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/program"
	"sluice/internal/system/kernel/nft"
)

// A table of sources that forgets after two days, as "limit 2/day per source" needs it,
// is one that nft takes: of a time in milliseconds it reads eight digits.
func TestTablesForgetAfterDays(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	ns := testnet.New(t).Namespace("days")
	for _, hours := range []uint64{1, 27, 28, 48, 24 * 365} {
		s := Set{Life: program.Dynamic, Types: []string{"ipv4_addr"}, Size: 10, Timeout: hours * 3_600_000}
		err := ns.Do(func() error {
			return nft.Run(context.Background(), "add table inet t; add set inet t s { "+s.definition()+" }; delete table inet t\n")
		})
		if err != nil {
			t.Errorf("%d hours: %v", hours, err)
		}
		if strings.Contains(s.definition(), "ms;") != (hours < 28) {
			t.Errorf("%d hours: %s", hours, s.definition())
		}
	}
}
