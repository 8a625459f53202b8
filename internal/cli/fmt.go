package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sluice/internal/base/regular"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/language/policy"
)

func newFmt() *cobra.Command {
	var write, check bool
	cmd := &cobra.Command{
		Use:   "fmt [FILE]...",
		Short: "Write a policy in its canonical form",
		Long: `Prints a policy file (/etc/sluice/policy.yaml unless you give FILE, standard input for -) in
its canonical form: two spaces a level, rules as lines with words in the order of the grammar,
addresses and codes in their shortest form, words that were renamed as they are called now.
Comments and single empty lines stay. The meaning does not change. Included files are files of
their own; name them too.

With -w files are written in place, each in one step; a canonical file is not touched. With
--check nothing is written, and the files that differ are listed. A file with errors is left as
it is.

Exit status: 0 fine, 1 with --check: a file differs, 2 errors or bad use.
Files: /etc/sluice/policy.yaml.`,
		Example: `  sluice fmt policy.yaml
  sluice fmt -w policy.yaml vms/*.yaml
  sluice fmt --check policy.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{command.DefaultPolicy}
			}
			if len(args) > 1 && !write && !check {
				return errors.New("cannot print more than one file\nhint: write them in place with -w, or compare them with --check")
			}
			return formatFiles(cmd, args, write, check)
		},
	}
	cmd.Flags().BoolVarP(&write, "write", "w", false, "write the files in place")
	cmd.Flags().BoolVar(&check, "check", false, "list the files that are not canonical")
	cmd.MarkFlagsMutuallyExclusive("write", "check")
	return cmd
}

// formatFiles goes on after a file with errors, so that all of them are seen.
func formatFiles(cmd *cobra.Command, files []string, write, check bool) error {
	var failed error
	differs := false
	done := []formattedJSON{}
	for _, name := range files {
		f, err := formatFile(cmd, name, write, check)
		failed = errors.Join(failed, err)
		differs = differs || !f.Canonical
		done = append(done, f)
	}
	if failed == nil && optionsOf(cmd).json {
		failed = command.PrintJSON(cmd.OutOrStdout(), struct {
			Files []formattedJSON `json:"files"`
		}{done})
	}
	switch {
	case failed != nil:
		return failed
	case check && differs:
		return command.ErrFound
	}
	return nil
}

// formattedJSON is what "fmt --json" says of a file.
type formattedJSON struct {
	File      string `json:"file"`
	Canonical bool   `json:"canonical"`      // it was so before
	Text      string `json:"text,omitempty"` // canonical, where it was asked for and not written
}

// formatFile handles one file.
func formatFile(cmd *cobra.Command, name string, write, check bool) (formattedJSON, error) {
	f := formattedJSON{File: name, Canonical: true}
	data, err := readPolicyText(cmd.InOrStdin(), name)
	if err != nil {
		return f, err
	}
	text, err := policy.Format(name, data)
	if err != nil {
		return f, err
	}
	f.Canonical = bytes.Equal(data, text)
	out, asJSON := cmd.OutOrStdout(), optionsOf(cmd).json
	switch {
	case check && !f.Canonical && !asJSON:
		_, err = fmt.Fprintln(out, name)
	case check, write && f.Canonical:
	case write && name != engine.StandardInput:
		err = regular.Replace(name, text)
	case asJSON:
		f.Text = string(text)
	default:
		_, err = command.Exact(out).Write(text)
	}
	return f, err
}

func readPolicyText(in io.Reader, name string) ([]byte, error) {
	if name != engine.StandardInput {
		return command.ReadFile(name)
	}
	data, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	return data, nil
}
