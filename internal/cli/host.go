package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"sluice"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/words"
)

// policyHelp is for the commands that read a policy.
const policyHelp = `
Files: the policy is /etc/sluice/policy.yaml unless you give FILE; the state is in
/var/lib/sluice (--state-dir, SLUICE_STATE_DIR), for a network namespace in netns/NAME there.`

// filesHelp ends the help of every command that works on the state.
const filesHelp = `
Files: the state is in /var/lib/sluice (--state-dir, SLUICE_STATE_DIR), for a network namespace
in netns/NAME there.`

func addWait(cmd *cobra.Command) {
	command.AddTime(cmd.Flags(), "wait", 10*time.Second, "wait at most `TIME` for another command that is changing the firewall")
}

// addMessage is for what history, or bans, shows.
func addMessage(cmd *cobra.Command) {
	cmd.Flags().StringP("message", "m", "", "record a `REASON` for the history and the list of bans")
}

// hostOf is the host, or the namespace, that a command works on.
func hostOf(cmd *cobra.Command) (*engine.Host, error) { return hostIn(cmd, optionsOf(cmd).netns) }

// hostIn is the host of a namespace, "" being that of the caller.
func hostIn(cmd *cobra.Command, netns string) (*engine.Host, error) {
	o := optionsOf(cmd)
	h, err := engine.NewHost(o.stateDir, netns, sluice.Version())
	if err != nil {
		return nil, err
	}
	if reason, _ := cmd.Flags().GetString("message"); reason != "" {
		if err := h.By.Because(reason); err != nil {
			return nil, fmt.Errorf("--message: %w", err)
		}
	}
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	base, err := filepath.Abs(o.stateDir)
	if err != nil {
		return nil, err
	}
	h.Watcher = []string{program, "--state-dir", base}
	if netns != "" {
		h.Watcher = append(h.Watcher, "--netns", netns)
	}
	h.Watcher = append(h.Watcher, "watch")
	h.Wait, h.Fetch = command.TimeOf(cmd.Flags(), "wait"), fetchRanges
	errOut := cmd.ErrOrStderr()
	h.Warn = func(text string) { warn(errOut, text) }
	var noting sync.Mutex
	h.Note = func(text string) {
		noting.Lock()
		defer noting.Unlock()
		note(cmd, text)
	}
	h.Shout = func(text string) { fmt.Fprintln(errOut, "sluice: "+text) }
	h.Words = func(err error) string { return words.Hinted(err, command.HereIn(cmd, netns)) }
	if command.Colours(errOut) {
		h.Progress = progressOn(errOut)
	} else {
		h.Progress = linesOn(errOut, quietTime)
	}
	return h, nil
}

// hinted gives the text of an error where it is not what the command ends with.
func hinted(cmd *cobra.Command) func(error) string {
	return func(err error) string { return words.Hinted(err, command.HereArguments(cmd)) }
}

// completeGeneration offers the generations of the history.
func completeGeneration(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	h, err := hostOf(cmd)
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	h.Note = nil
	kept, err := h.History()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var numbers []string
	for _, g := range kept.Generations {
		if g.Closed {
			continue
		}
		numbers = append(numbers, cobra.CompletionWithDesc(fmt.Sprint(g.Number), g.Policy))
	}
	return numbers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// sourcesOf is where a command takes the names of policies from.
func sourcesOf(cmd *cobra.Command, offline bool) *engine.Sources {
	w := cmd.ErrOrStderr()
	return &engine.Sources{
		State: optionsOf(cmd).stateDir, Offline: offline, Fetch: fetchRanges, Warn: func(text string) { warn(w, text) }, Words: hinted(cmd),
	}
}

// request is what the flags of a command say of how a policy is built.
func request(cmd *cobra.Command, args []string) (r engine.Request, err error) {
	r.File = command.PolicyArgument(args)
	r.Detach = given(cmd, "detach")
	r.NoExpect, _ = cmd.Flags().GetBool("no-expect")
	if r.Without, err = passesLeftOut(cmd); err != nil {
		return r, err
	}
	from, _ := cmd.Flags().GetString("profile")
	switch from {
	case "":
	case profileNone:
		r.Order = engine.AsWritten
	case profileRunning:
		r.Order = engine.ByRunning
	default:
		r.Order = engine.ByHits
		r.Hits, err = readProfile(from)
	}
	return r, err
}

// note prints what is good to know.
func note(cmd *cobra.Command, text string) {
	w := cmd.ErrOrStderr()
	fmt.Fprintf(w, "%s %s\n", command.Paint(w, "33", "note:"), text)
}

// warn prints what does not keep a command from its work, and should be read.
func warn(w io.Writer, text string) {
	fmt.Fprintf(w, "%s %s\n", command.Paint(w, "33", "warning:"), command.StyleHints(text))
}
