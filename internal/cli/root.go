package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// foundError makes the exit status 1: the command worked and found something
// that the caller asked to be told of. Its text, if any, is printed.
type foundError struct{ text string }

func (e *foundError) Error() string { return e.text }

// errFound is for commands that have printed all there is to say.
var errFound = &foundError{}

// Main runs one command line and returns the exit status.
func Main(args []string) int {
	return run(args, os.Stdin, os.Stdout, os.Stderr)
}

func run(args []string, in io.Reader, out, errOut io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.Execute()
	var found *foundError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &found):
		if found.text != "" {
			fmt.Fprintln(errOut, found.text)
		}
		return 1
	default:
		printError(errOut, err)
		return 2
	}
}

// newRoot makes the whole command tree.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "A firewall that keeps the packet path short and proves it",
		Long: `Sluice compiles one policy file to the cheapest firewall that this kernel can
run, loads it without a gap, and takes it back by itself if it locked you out.

Exit status: 0 fine, 1 found something, 2 bad use or bad input.`,
		Example: `  sluice init > /etc/sluice/policy.yaml
  sluice plan /etc/sluice/policy.yaml
  sluice apply /etc/sluice/policy.yaml --confirm 60s`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return enterNetns(optionsOf(cmd).netns)
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = false
	addGlobalFlags(root)
	root.AddCommand(
		// One line a command, in the order of the help.
		newInit(),
		newCheck(),
		newFmt(),
		newSchema(),
		newCompile(),
		newFacts(),
		newGeo(),
		newPlan(),
		newApply(),
		newConfirm(),
		newRollback(),
		newStatus(),
		newHistory(),
		newRemove(),
		newRestore(),
		newWatch(),
		newGenerateDocs(),
	)
	return root
}
