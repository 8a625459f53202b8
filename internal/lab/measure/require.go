package measure

import (
	"context"
	"fmt"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/testnet"
)

// LiveFrames is the feature that a program's frames go into the network stack
// (Linux 5.18).
var LiveFrames = testnet.Probed("BPF test runs with live frames", func() error {
	if err := askLiveFrames(); err != nil {
		return err
	}
	return Ask()
})

// Ask makes a lab and sends it some frames: nil when this machine can measure,
// else why not.
func Ask() error { return testnet.Within("measure", ask) }

func ask(net *testnet.Net) error {
	lab, err := NewLab(net, "ask")
	if err != nil {
		return err
	}
	source, err := Load(UDP(ByAddress(addrset.All(), addrset.IPv4, batch, 1), Target(addrset.IPv4, 9)))
	if err != nil {
		return err
	}
	defer source.Close()
	run, err := lab.Inject(context.Background(), source, batch)
	if err == nil && run.Survived != batch {
		err = fmt.Errorf("%d of %d frames arrived", run.Survived, batch)
	}
	return err
}

// Require skips the test when this machine cannot measure; see testnet.Require.
func Require(t testnet.TB) {
	t.Helper()
	testnet.Require(t, testnet.Namespaces, testnet.Nftables, LiveFrames)
}
