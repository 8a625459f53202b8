package cli

import (
	"github.com/spf13/cobra"

	"sluice/internal/language/policy"
)

func newSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of policy files",
		Long: `Prints the JSON Schema (draft 2020-12) of policy files, for editors and for
checks where Sluice is not installed. It knows keys and types; names, words and
their sense in a section only "sluice check" knows.

Editors with the YAML language server use it after a first line of
  # yaml-language-server: $schema=sluice-policy.json

Exit status: 0 fine, 2 bad use.`,
		Example: "  sluice schema > sluice-policy.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(policy.Schema())
			return err
		},
	}
}
