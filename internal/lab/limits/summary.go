package limits

import (
	"context"
	"fmt"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
)

// Summary measures for some seconds and says in three lines what a packet costs for
// "all but Europe" under Sluice's layout, one interval set and a chain per /8.
func Summary(ctx context.Context, o Options) ([]string, error) {
	var lines []string
	o.Short = true
	err := with(ctx, o, &figures.Report{}, func(b *bench) error {
		b.title("summary", "all but Europe")
		return b.section(func() error {
			var peers []peer
			for _, p := range everyPeer {
				switch p.name {
				case bare, oneSet, ours, remedy:
					peers = append(peers, p)
				}
			}
			traffics := meant[byWeight]
			there, cells, done, err := b.lay(contest{peers: peers, blocked: b.world.blocked.Only4(), cases: b.draws4()[:len(traffics)]})
			defer done()
			if err != nil {
				return err
			}
			r, err := measure.Compare(b, measure.Plan{Rounds: b.rounds(41), Packets: 1 << 14}, cells)
			if err != nil {
				return err
			}
			one := r.AddedMean(oneSet, bare, traffics...)
			for _, p := range there {
				switch p.Name {
				case bare:
				case oneSet:
					lines = append(lines, fmt.Sprintf("%-24s adds %5.0f ns to a packet", p.Name, one.Estimate().Median))
				default:
					of := r.AddedMean(p.Name, bare, traffics...)
					lines = append(lines, fmt.Sprintf("%-24s adds %5.0f ns to a packet, %.2g × one interval set",
						p.Name, of.Estimate().Median, of.Per(one).Estimate().Median))
				}
			}
			return nil
		})
	})
	return lines, err
}
