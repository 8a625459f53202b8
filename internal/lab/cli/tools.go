package cli

import (
	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/lab/demo"
	"sluice/internal/lab/kernels/matrix"
	"sluice/internal/lab/stress"
)

// tools are commands of the source tree, which make calls: with flags of one dash.
func tools() []*cobra.Command {
	var out []*cobra.Command
	for _, t := range []struct {
		name, short, long string
		main              func([]string) int
	}{
		{"kernels", "Run tests and measurements on other kernels, emulated", `Runs the tests of the source tree, or what "bench" measures, on Debian's kernels in
emulated machines: "make kernels" in the tree.`, matrix.Main},
		{"stress", "Change policies under traffic and count what becomes of packets", `Applies and refreshes policies over and over while packets go through, and counts
what became of them: "make stress" in the source tree.`, stress.Main},
		{"demo", "Show Sluice at work on real packets", `Plays the only-Europe example in network namespaces, with country data and packets:
"make demo" in the source tree.`, demo.Main},
	} {
		out = append(out, &cobra.Command{
			Use: t.name, Short: t.short, DisableFlagParsing: true,
			Long: t.long + `

Flags are listed by -h.

Exit status: 0 all is as it has to be, 1 something is not, 2 bad use, or a machine that
lacks something, 130 interrupted.`,
			Example: "  sluice-lab " + t.name + " -h",
			RunE: func(_ *cobra.Command, args []string) error {
				if status := t.main(args); status != 0 {
					return &command.StatusError{Status: status}
				}
				return nil
			},
		})
	}
	return out
}
