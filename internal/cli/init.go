package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/language/starter"
)

func newInit() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a first policy from what this host listens on",
		Long: `Writes a first policy from what this host listens on and who is logged in over ssh, to standard
output or to a new file. Everything but ssh is commented out, with the reason next to it;
ports that other tools publish (for containers) are listed. What the policy drops goes to
"sluice log", which the agent keeps. Nothing on the host changes.

Without root the names of other users' programs and the rules of other tools cannot be read;
the policy says so.

Exit status: 0 fine, 2 the host could not be read, or the file exists.`,
		Example: "  sluice init\n  sluice init -o /etc/sluice/policy.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			situation, err := starter.Describe(cmd.Context())
			if err != nil {
				return err
			}
			text := starter.Policy(situation)
			if file != "" {
				if err := writeNew(file, text); err != nil {
					return err
				}
			}
			switch {
			case optionsOf(cmd).json:
				return command.PrintJSON(cmd.OutOrStdout(), struct {
					File   string `json:"file,omitempty"`
					Policy string `json:"policy"`
				}{file, string(text)})
			case file != "":
				_, err = fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s\n", file)
			default:
				_, err = cmd.OutOrStdout().Write(text)
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to `FILE`, which must not exist")
	_ = cmd.MarkFlagFilename("output", "yaml", "yml")
	return cmd
}

// writeNew writes a file that must not exist, and makes its folder: nothing else makes /etc/sluice.
func writeNew(name string, text []byte) (err error) {
	if err := os.Mkdir(filepath.Dir(name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists\nhint: choose another name, or remove it first", name)
	} else if err != nil {
		return err
	}
	defer func() {
		if closing := f.Close(); err == nil {
			err = closing
		}
		if err != nil {
			_ = os.Remove(name)
		}
	}()
	if _, err := f.Write(text); err != nil {
		return err
	}
	return f.Sync()
}
