package conntrack_test

import (
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/conntrack"
)

func TestReadTable(t *testing.T) {
	host := testnet.New(t).Unnamed("host")
	host.MustRun("ip", "link", "set", "lo", "up")
	host.MustRun("nft", "add table inet t; add chain inet t c { type filter hook input priority 0; }; add rule inet t c ct state new accept")
	read := func() (table *conntrack.Table) {
		t.Helper()
		err := host.Do(func() (err error) {
			table, err = conntrack.ReadTable()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	before := read()
	host.MustRun("ping", "-c", "1", "127.0.0.1")
	after := read()
	if before.Entries != 0 || after.Entries != 1 || after.Most == 0 || after.Percent() != 0 {
		t.Errorf("before %+v, after %+v", before, after)
	}
}
