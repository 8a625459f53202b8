package cli

import (
	"github.com/spf13/cobra"

	"sluice/internal/agent/config"
	"sluice/internal/language/policy"
)

func newSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema [agent]",
		Short: "Print the JSON Schema of policy files, or of the agent's file",
		Long: `Prints the JSON Schema (draft 2020-12) of policy files, for editors and for checks where Sluice
is not installed. It knows keys and types; only "sluice check" knows names, words and what they
mean in a section.

With agent, the schema of the agent's file.

Editors with the YAML language server use it if the first line is
  # yaml-language-server: $schema=sluice-policy.json

Exit status: 0 fine, 2 bad use.`,
		Example:   "  sluice schema > sluice-policy.json\n  sluice schema agent",
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"agent"},
		RunE: func(cmd *cobra.Command, args []string) error {
			text := policy.Schema()
			if len(args) > 0 {
				text = config.Schema()
			}
			_, err := cmd.OutOrStdout().Write(text)
			return err
		},
	}
}
