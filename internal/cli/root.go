package cli

import (
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
	stdout := &counted{Writer: newPlainWriter(out)}
	errOut = newPlainWriter(errOut)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(stdout)
	root.SetErr(errOut)
	cmd, err := root.ExecuteC()
	if err != nil {
		return fail(cmd, args, err, stdout, errOut)
	}
	return 0
}

// newRoot makes the whole command tree.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "A firewall that keeps the packet path short and proves it",
		Long: `Sluice compiles one policy file to the cheapest firewall that this kernel can
run, loads it without a gap, and takes it back by itself if it locked you out.

With --json every command prints one JSON value on standard output. When it fails
before that, the value has the keys "error" and "exit-status".

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
	root.Version = buildVersion()
	root.SetVersionTemplate(versionText())
	root.CompletionOptions.DisableDefaultCmd = true // newCompletion stands in for it
	root.SetHelpCommand(newHelp())
	addGlobalFlags(root)
	root.AddCommand(
		// One line a command, in the order of the help.
		newInit(),
		newCheck(),
		newLint(),
		newFmt(),
		newSchema(),
		newCompile(),
		newExplain(),
		newQuery(),
		newDiff(),
		newTest(),
		newFacts(),
		newGeo(),
		newPlan(),
		newShadow(),
		newApply(),
		newConfirm(),
		newRollback(),
		newBan(),
		newUnban(),
		newBans(),
		newRefresh(),
		newSync(),
		newStatus(),
		newVerify(),
		newHistory(),
		newRemove(),
		newRestore(),
		newBench(),
		newLoad(),
		newStory(),
		newCompletion(),
		newVersion(),
		newWatch(),
		newFetchRanges(),
		newGenerateDocs(),
	)
	return root
}
