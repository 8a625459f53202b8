package drift

import (
	"testing"

	"sluice/internal/lab/testnet"
	machine "sluice/internal/system/host"
	"sluice/internal/system/kernel/attached"
	"sluice/internal/system/kernel/nft"
	"sluice/internal/system/kernel/xtables"
)

// BenchmarkPoll is what a look takes while nothing changes, by its parts.
func BenchmarkPoll(b *testing.B) {
	testnet.Require(b, testnet.Nftables, testnet.Program("iptables-legacy"), testnet.IPTablesLegacy("filter"))
	h := newHost(b)
	for range 50 {
		h.net.MustRun("iptables-legacy", "-A", "INPUT", "-p", "tcp", "--dport", "81", "-j", "DROP")
	}
	for name, part := range map[string]func() error{
		"legacy":   func() error { _, err := xtables.Sum(); return err },
		"attached": func() error { _, _ = attached.List(); return nil },
		"beside":   func() error { _, err := nft.Beside(machine.OwnTables...); return err },
		"glimpse":  func() error { _, err := h.Host.Host.Glimpse(b.Context()); return err },
	} {
		b.Run(name, func(b *testing.B) {
			err := h.Netns.Do(func() error {
				for b.Loop() {
					if err := part(); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
