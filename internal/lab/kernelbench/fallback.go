package kernelbench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/base/addrset"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
)

// fallback takes the module of flowtables away from the kernel, and sees that Sluice
// finds it missing and forwards by the classic path what a policy wants accelerated.
// It comes first: a module that is loaded stays.
func (b *bench) fallback() (err error) {
	if b.Modules == "" {
		b.Say("fallback: left out, the modules of this machine are not touched")
		return nil
	}
	files, err := filepath.Glob(filepath.Join(b.Modules, "*", "kernel", "net", "netfilter", "nf_flow_table*"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		b.report.Warnings = append(b.report.Warnings, fmt.Sprintf("kernel %s: flowtables are no module, so what is done without them is not shown", b.kernel))
		return nil
	}
	for _, f := range files {
		away := f + ".away"
		if err := os.Rename(f, away); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.Rename(away, f)) }()
	}
	if can := nftables.New().Capabilities(b); can[backend.Flowtable] != backend.No || can[backend.InetNAT] != backend.Yes {
		return fmt.Errorf("without the module of flowtables, flowtable: %v, NAT: %v", can[backend.Flowtable], can[backend.InetNAT])
	}
	return testnet.Within("fallback", b.fallbackIn)
}

func (b *bench) fallbackIn(net *testnet.Net) (err error) {
	if err := b.banList(); err != nil {
		return err
	}
	w := way{layout: "sluice", fast: true}
	if w.lab, err = measure.NewForwardLab(net, "without"); err != nil {
		return err
	}
	if err := b.load(w); err != nil {
		return err
	}
	s := figures.Section{Name: "fallback", Title: "The same kernel without the module of flowtables", Text: []string{
		"The module is removed; a policy with accelerate: true is applied. Sluice finds that flowtables are missing, and every packet of known connections comes through by the forward hook.",
	}}
	for _, f := range []addrset.Family{addrset.IPv4, addrset.IPv6} {
		passed, err := b.passOnce(w.lab, f)
		if err != nil {
			return fmt.Errorf("IPv%d: %w", f, err)
		}
		if passed != proofPackets {
			return fmt.Errorf("IPv%d: %d of %d packets passed the forward hook, all should", f, passed, proofPackets)
		}
		s.Add(figures.Figure{
			Case: w.name() + " asked for", Subject: b.kernel, Quantity: forwardHook(f), Unit: "packets",
			Samples: stats.Series{float64(passed)},
		})
	}
	b.report.Sections = append(b.report.Sections, s)
	return nil
}

// passOnce makes known connections and counts their packets at the forward hook.
func (b *bench) passOnce(l *measure.Lab, f addrset.Family) (int, error) {
	t := traffic(f)
	source, err := measure.Load(t)
	if err != nil {
		return 0, err
	}
	defer source.Close()
	if _, err := l.Establish(b, t, measure.Available()); err != nil {
		return 0, err
	}
	return b.passForward(l, source)
}
