package nftables

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/lab/calibrate/account"
	"sluice/internal/lab/testnet"
)

var measure = flag.Bool("measure", false, "measure what layouts cost, on the kernel at hand")

func newAccount(t testing.TB) *account.Account {
	t.Helper()
	a := account.Open()
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// taken takes steps in a namespace and says what they added: bytes of kernel
// memory, and time of the processor, that of nft included.
func taken(t testing.TB, a *account.Account, in *testnet.Namespace, steps ...backend.Step) (bytes uint64, cpu time.Duration) {
	t.Helper()
	added, cpu, err := a.Take(in, func() error {
		for _, s := range steps {
			if err := s.Take(context.Background()); err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return uint64(max(0, added)), cpu
}

// defaults are the costs that tests predict by.
var defaults = DefaultCosts()
