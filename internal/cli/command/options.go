package command

import (
	"encoding/json"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sluice/internal/words"
)

// Where things lie unless a command line says otherwise.
const (
	DefaultStateDir = "/var/lib/sluice"
	DefaultPolicy   = words.DefaultPolicy
)

// HostFlags are those of programs that work on the host that they run on.
func HostFlags(root *cobra.Command) {
	state := os.Getenv("SLUICE_STATE_DIR")
	if state == "" {
		state = DefaultStateDir
	}
	flags := root.PersistentFlags()
	flags.Var((*something)(&state), "state-dir", "keep history, country data and lists in `DIR` (environment: SLUICE_STATE_DIR)")
	flags.Var(new(something), "netns", "work in the network namespace `NAME`, with a state of its own")
	Must(root.RegisterFlagCompletionFunc("netns", CompleteNetns))
}

// something is a flag that is given with more than "", which a shell makes of a variable
// that is not set.
type something string

func (s *something) String() string { return string(*s) }
func (*something) Type() string     { return "string" }

func (s *something) Set(text string) error {
	if text == "" {
		return errors.New("it is empty")
	}
	*s = something(text)
	return nil
}

// JSON says whether a command is to print JSON.
func JSON(cmd *cobra.Command) bool {
	is, _ := cmd.Flags().GetBool("json")
	return is
}

// StateDir is the directory of policies, history and country data.
func StateDir(cmd *cobra.Command) string {
	dir, _ := cmd.Flags().GetString("state-dir")
	return dir
}

// Netns names the network namespace that a command works in; "" is that of the caller.
func Netns(cmd *cobra.Command) string {
	name, _ := cmd.Flags().GetString("netns")
	return name
}

// PolicyArgument is the policy file that a command works on.
func PolicyArgument(args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	return DefaultPolicy
}

// PrintJSON prints v as one indented JSON value.
func PrintJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Colours says whether w is a terminal that wants Colours.
func Colours(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && IsTerminal(w)
}

// IsTerminal says whether what is written to w is seen by somebody who waits for it.
func IsTerminal(w io.Writer) bool {
	f, is := Bare(w).(*os.File)
	return is && term.IsTerminal(int(f.Fd()))
}

// Paint wraps text in an ANSI style ("1" bold, "31" red, "32" green, "33"
// yellow, "2" faint) where w wants Colours.
func Paint(w io.Writer, style, text string) string {
	if !Colours(w) {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}
