package cli

import (
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"sluice/internal/policy"
)

// manDate stands in the man pages, so that they are the same on every day that
// they are generated; it is moved with a release.
var manDate = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)

func newGenerateDocs() *cobra.Command {
	return &cobra.Command{
		Use:    "generate-docs DIRECTORY",
		Short:  "Write the reference pages, man pages and shell completions",
		Hidden: true, // for scripts/generate, not for those who run a firewall
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return generateDocs(cmd.Root(), args[0])
		},
	}
}

// generateDocs writes everything below docs/ that comes from the code.
func generateDocs(root *cobra.Command, dir string) error {
	root.DisableAutoGenTag = true // it would name the day
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, name := range []string{"reference", "commands", "man", "completion"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	for name, data := range map[string][]byte{
		"language.md":        policy.Reference(),
		"policy.schema.json": policy.Schema(),
	} {
		if err := os.WriteFile(filepath.Join(dir, "reference", name), data, 0o644); err != nil {
			return err
		}
	}
	if err := doc.GenMarkdownTree(root, filepath.Join(dir, "commands")); err != nil {
		return err
	}
	header := &doc.GenManHeader{Section: "1", Source: "Sluice", Manual: "Sluice manual", Date: &manDate}
	if err := doc.GenManTree(root, header, filepath.Join(dir, "man")); err != nil {
		return err
	}
	completion := filepath.Join(dir, "completion")
	if err := root.GenBashCompletionFileV2(filepath.Join(completion, "sluice.bash"), true); err != nil {
		return err
	}
	if err := root.GenZshCompletionFile(filepath.Join(completion, "_sluice")); err != nil {
		return err
	}
	return root.GenFishCompletionFile(filepath.Join(completion, "sluice.fish"), true)
}
