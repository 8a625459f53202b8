package link_test

import (
	"slices"
	"testing"

	"github.com/safchain/ethtool"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/link"
)

// TestCards: what is turned off is told, what the driver has not is no error, and a device
// that is not there is left out.
func TestCards(t *testing.T) {
	n := testnet.New(t)
	host := n.Unnamed("host")
	n.Join(testnet.End{In: host, Device: "eth0"}, testnet.End{In: n.Unnamed("other"), Device: "eth0"})
	if err := host.Do(func() error {
		driver, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer driver.Close()
		off := func() []string {
			all, err := link.Cards("lo", "eth0", "gone")
			if err != nil {
				t.Error(err)
			}
			if _, is := all["gone"]; is || len(all) != 2 || all["eth0"].Driver != "veth" {
				t.Errorf("%+v", all)
			}
			return all["eth0"].Off
		}
		const feature = "tx-generic-segmentation"
		if slices.Contains(off(), feature) {
			t.Errorf("%s is off from the beginning", feature)
		}
		if err := driver.Change("eth0", map[string]bool{feature: false}); err != nil {
			return err
		}
		if !slices.Contains(off(), feature) {
			t.Errorf("%s is not off", feature)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
