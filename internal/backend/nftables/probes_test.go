package nftables

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/nft"
)

// TestCapabilities asks the kernel at hand. What is said to be there has to be
// there when it is tried by another way, and the answer must leave nothing in
// the caller's own namespace.
func TestCapabilities(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Nftables)
	host := testnet.New(t).Unnamed("host")
	var can backend.Capabilities
	var left []byte
	err := host.Do(func() (err error) {
		can = New().Capabilities(context.Background())
		left, err = nft.List(context.Background(), "ruleset")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(left), "sluice_probe") {
		t.Errorf("probing left something behind: %s", left)
	}
	for _, f := range []struct {
		feature backend.Feature
		same    testnet.Feature
	}{
		{backend.Flowtable, testnet.Flowtable},
		{backend.InetNAT, testnet.NftNAT},
		{backend.ConnectionCount, testnet.NftConnLimit},
	} {
		want := backend.Yes
		if f.same.Ask() != nil {
			want = backend.No
		}
		if can[f.feature] != want {
			t.Errorf("%s: %s, want %s", f.feature, can[f.feature], want)
		}
	}
	for _, p := range probes {
		if can[p.name] == backend.CannotTell {
			t.Errorf("%s: cannot tell, though the baseline loads", p.name)
		}
	}
}

// TestCapabilitiesTogether: asked by several at once, none of them takes the first thread,
// which is what /proc/self shows and never ends.
func TestCapabilitiesTogether(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Nftables)
	where := func() string {
		ns, err := os.Readlink("/proc/self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		return ns
	}
	before := where()
	var asking sync.WaitGroup
	for range 6 {
		asking.Go(func() { New().Capabilities(t.Context()) })
	}
	asking.Wait()
	if after := where(); after != before {
		t.Errorf("the process is in %s, and was in %s", after, before)
	}
}

// TestCapabilitiesOneByOne: a kernel that lacks one feature is told from one
// that lacks them all.
func TestCapabilitiesOneByOne(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Nftables)
	host := testnet.New(t).Unnamed("host")
	lacking := append([]feature{{"impossible", "chain c { type filter hook input priority 0; impossible; }"}}, probes...)
	var all, can backend.Capabilities
	if err := host.Do(func() error {
		all, can = New().Capabilities(context.Background()), capabilities(context.Background(), lacking)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if can["impossible"] != backend.No {
		t.Errorf("what cannot be had: %s", can["impossible"])
	}
	yes := 0
	for f, want := range all {
		if can[f] != want {
			t.Errorf("%s: %s beside one that is lacking, %s without", f, can[f], want)
		}
		if want == backend.Yes {
			yes++
		}
	}
	if yes == 0 {
		t.Error("nothing can be had")
	}
}

// TestCapabilitiesWithoutNft: without nft nothing can be told, and above all
// nothing is denied.
func TestCapabilitiesWithoutNft(t *testing.T) {
	for _, path := range []string{"/usr/sbin/nft", "/sbin/nft", "/usr/local/sbin/nft"} {
		if _, err := os.Stat(path); err == nil {
			// It would be found there without any PATH.
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			for feature, answer := range New().Capabilities(ctx) {
				if answer != backend.CannotTell {
					t.Errorf("%s: %s by an nft that could not run", feature, answer)
				}
			}
			return
		}
	}
	t.Setenv("PATH", t.TempDir())
	for feature, answer := range New().Capabilities(context.Background()) {
		if answer != backend.CannotTell {
			t.Errorf("%s: %s without nft", feature, answer)
		}
	}
}
