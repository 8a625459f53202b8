package cli

import (
	"encoding/json"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// options are the flags that every command has.
type options struct {
	json     bool
	stateDir string // policies, history, country data
	netns    string // "" is the namespace of the caller
}

const (
	defaultStateDir = "/var/lib/sluice"
	defaultPolicy   = "/etc/sluice/policy.yaml"
)

func addGlobalFlags(root *cobra.Command) {
	state := os.Getenv("SLUICE_STATE_DIR")
	if state == "" {
		state = defaultStateDir
	}
	flags := root.PersistentFlags()
	flags.Bool("json", false, "print one JSON value instead of text")
	flags.String("state-dir", state, "`DIR` of history, country data and lists (environment: SLUICE_STATE_DIR)")
	flags.String("netns", "", "work in the network namespace `NAME`, with a state of its own")
	must(root.RegisterFlagCompletionFunc("netns", completeNetns))
}

func optionsOf(cmd *cobra.Command) options {
	flags := cmd.Flags()
	var o options
	o.json, _ = flags.GetBool("json")
	o.stateDir, _ = flags.GetString("state-dir")
	o.netns, _ = flags.GetString("netns")
	return o
}

// policyArgument is the policy file that a command works on.
func policyArgument(args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	return defaultPolicy
}

// printJSON prints v as one indented JSON value.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// colours says whether w is a terminal that wants colours.
func colours(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(w)
}

// isTerminal says whether what is written to w is seen by somebody who waits for it.
func isTerminal(w io.Writer) bool {
	f, is := bare(w).(*os.File)
	return is && term.IsTerminal(int(f.Fd()))
}

// paint wraps text in an ANSI style ("1" bold, "31" red, "32" green, "33"
// yellow, "2" faint) where w wants colours.
func paint(w io.Writer, style, text string) string {
	if !colours(w) {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}
