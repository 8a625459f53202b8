package ruleset_test

import (
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/ruleset"
)

// The tables are read also where PATH does not have the administrator's programs, as under
// cron and su.
func TestNFTablesOutsidePath(t *testing.T) {
	testnet.Require(t, testnet.Nftables)
	host := testnet.New(t).Unnamed("host")
	host.Nft("table ip other { chain in { type filter hook input priority 0; policy drop; }; }")
	t.Setenv("PATH", t.TempDir())
	if err := host.Do(func() error {
		tables, err := ruleset.NFTables(t.Context(), "sluice")
		if len(tables) != 1 || len(tables[0].Chains) != 1 || tables[0].Chains[0].Policy != "drop" {
			t.Errorf("read: %+v", tables)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
