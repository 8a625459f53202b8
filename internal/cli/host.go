package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"sluice"
	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
)

// policyHelp is for the commands that read a policy.
const policyHelp = `
Files: the policy is /etc/sluice/policy.yaml unless FILE is given; the state is
kept in /var/lib/sluice (--state-dir, SLUICE_STATE_DIR), that of a network
namespace below netns/NAME in it.`

// filesHelp ends the help of every command that works on the state.
const filesHelp = `
Files: the state is kept in /var/lib/sluice (--state-dir, SLUICE_STATE_DIR), that
of a network namespace below netns/NAME in it.`

func addWait(cmd *cobra.Command) {
	command.AddTime(cmd.Flags(), "wait", 10*time.Second, "wait at most `TIME` for another command that changes the firewall")
}

// hostOf is the host, or the namespace, that a command works on.
func hostOf(cmd *cobra.Command) (*apply.Host, error) {
	o := optionsOf(cmd)
	base, err := filepath.Abs(o.stateDir)
	if err != nil {
		return nil, err
	}
	dir, err := apply.Dir(base, o.netns)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	watcher := []string{program, "--state-dir", base}
	if o.netns != "" {
		watcher = append(watcher, "--netns", o.netns)
	}
	errOut := cmd.ErrOrStderr()
	h := &apply.Host{
		Dir: dir, Namespace: o.netns, Backend: o.nftables(), Kernel: apply.Linux(),
		Version: sluice.Version(), By: apply.Me(), Wait: command.TimeOf(cmd.Flags(), "wait"), Watcher: append(watcher, "watch"),
		Capabilities: o.capabilities,
		Note: func(text string) {
			fmt.Fprintf(errOut, "%s %s\n", command.Paint(errOut, "33", "note:"), command.CommandsHere(cmd, text))
		},
	}
	if command.Colours(errOut) {
		h.Progress = progressOn(errOut)
	} else {
		h.Progress = linesOn(errOut, quietTime)
	}
	return h, nil
}

// completeGeneration offers the generations of the history.
func completeGeneration(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	h, err := hostOf(cmd)
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	h.Note = nil
	list, _, _, _, err := h.History()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var numbers []string
	for _, g := range list {
		if g.Closed {
			continue
		}
		numbers = append(numbers, cobra.CompletionWithDesc(fmt.Sprint(g.Number), g.Policy))
	}
	return numbers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// warn prints what does not keep a command from its work, and should be read.
func warn(w io.Writer, text string) {
	fmt.Fprintf(w, "%s %s\n", command.Paint(w, "33", "warning:"), text)
}

// refused makes what Sluice refuses to do on purpose a finding: exit status 1.
func refused(err error) error {
	var lock *apply.LockOutError
	var memory *apply.MemoryError
	if errors.As(err, &lock) || errors.As(err, &memory) {
		return command.Found("refused: " + err.Error())
	}
	return undurable(err)
}

// undurable makes a confirmation that holds until the next boot alone a finding.
func undurable(err error) error {
	var kept *apply.UndurableError
	if errors.As(err, &kept) {
		return command.Found(err.Error())
	}
	return err
}
