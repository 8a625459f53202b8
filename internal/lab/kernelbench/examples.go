package kernelbench

import (
	"errors"
	"path/filepath"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/packetbench"
	"sluice/internal/lab/packetbench/against"
)

// byHand are the peers that an administrator would otherwise write.
var byHand = []string{"nftables-set", "ipset (iptables-nft)"}

// Examples is where the policies of the section are, under the directory that [Run] works in.
const Examples = "examples"

// examples measures every kind of packet of the source tree's examples, beside the same
// meaning by hand: a row a way to have it, a table a kind.
func (b *bench) examples() error {
	files, err := filepath.Glob(filepath.Join(Examples, "*", "policy.yaml"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("no examples are here")
	}
	s := figures.Section{Name: "examples", Title: "Every kind of packet of the examples, beside the same by hand"}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		sides, err := against.Choose(byHand, against.Patience)
		if err != nil {
			return err
		}
		o := b.options(file, name)
		sides.Into(&o)
		r, err := packetbench.Run(b, o)
		if err != nil {
			return err
		}
		b.bySubject(&s, r, name+": ")
		for _, w := range r.Warnings {
			b.report.Warnings = append(b.report.Warnings, name+": "+w)
		}
	}
	b.report.Sections = append(b.report.Sections, s)
	return nil
}
