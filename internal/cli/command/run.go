package command

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// FoundError makes the exit status 1: the command worked and found something
// that the caller asked to be told of. Its text, if any, is printed.
type FoundError struct{ text string }

func (e *FoundError) Error() string { return e.text }

// Found is for words.Ended.
func (*FoundError) Found() {}

// Found is a FoundError with a text.
func Found(text string) *FoundError { return &FoundError{text} }

// ErrFound is for commands that have printed all there is to say.
var ErrFound = Found("")

// ErrInterrupted makes the exit status 130.
var ErrInterrupted = errors.New("interrupted")

// Main runs one command line of the process and returns the exit status.
func Main(root *cobra.Command, args []string) int {
	return Run(root, args, os.Stdin, os.Stdout, os.Stderr)
}

// Run runs one command line and returns the exit status.
func Run(root *cobra.Command, args []string, in io.Reader, out, errOut io.Writer) int {
	stdout := &counted{Writer: newPlainWriter(out)}
	errOut = newPlainWriter(errOut)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(stdout)
	root.SetErr(errOut)
	renameFlags(root)
	cmd, err := root.ExecuteC()
	if err != nil {
		return fail(cmd, args, err, stdout, errOut)
	}
	return 0
}

// Root gives a program's first command what those of all programs have. The commands
// below it are the caller's.
func Root(root *cobra.Command) *cobra.Command {
	root.SilenceErrors, root.SilenceUsage = true, true
	addVersionFlag(root)
	root.CompletionOptions.DisableDefaultCmd = true // NewCompletion stands in for it
	root.SetHelpCommand(newHelp())
	root.PersistentFlags().Bool("json", false, "print one JSON value instead of text")
	return root
}

// Interruptible ends with Ctrl-C and SIGTERM; a change under way is then undone.
func Interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
}

// Must is for what fails by a mistake in a program's own commands alone.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}
