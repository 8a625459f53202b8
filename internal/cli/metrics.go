package cli

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"sluice/internal/base/exposition"
	"sluice/internal/cli/command"
)

func newMetrics() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Print metrics for Prometheus",
		Long: `Prints metrics in the text format of Prometheus: the running generation, whether it is proved,
drift, packets and bytes by line of the policy, bans, sizes of sets, ages of lists and country
data, the connection table, how long the last apply and the last proof took, and whether a
policy waits for confirmation. docs/metrics.md lists them.

With --textfile they are written to a file, which is replaced as a whole, in the directory that
node_exporter reads with --collector.textfile.directory. An agent returns the same to GET
/metrics on its socket.

At most 5,000 series are written; one of them counts those left out.
` + filesHelp + `

Exit status: 0 fine, 2 bad use, or it could not be read or written.`,
		Example: "  sluice metrics\n  sluice metrics --textfile /var/lib/prometheus/node-exporter/sluice.prom\n  sluice metrics --json | jq '.[] | select(.name == \"sluice_bans\")'",
		Args:    cobra.NoArgs,
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
			file, _ := cmd.Flags().GetString("textfile")
			if file != "" && filepath.Ext(file) != ".prom" {
				return fmt.Errorf("--textfile: node_exporter only reads files whose names end with .prom, not %q", file)
			}
			families, err := h.Metrics(ctx)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			switch {
			case file != "":
				var text bytes.Buffer
				_ = exposition.Write(&text, families) // to memory
				if err := renameio.WriteFile(file, text.Bytes(), 0o644, renameio.WithTempDir(filepath.Dir(file))); err != nil {
					return fmt.Errorf("write the metrics: %w", err)
				}
				if optionsOf(cmd).json {
					return command.PrintJSON(w, families)
				}
				return nil
			case optionsOf(cmd).json:
				return command.PrintJSON(w, families)
			}
			return exposition.Write(command.Exact(w), families)
		}),
	}
	cmd.Flags().String("textfile", "", "write them to `FILE`, whose name must end with .prom, and print nothing")
	return cmd
}
