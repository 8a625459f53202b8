package command

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/system/kernel/netns"
)

// newHelp stands in for the library's own, which takes an unknown command for
// no mistake.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]...",
		Short: "Show the help of a command",
		Long:  "Shows the help of a command, as --help does.\n\nExit status: 0 fine, 2 no such command.",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			at, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, c := range at.Commands() {
				if c.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				name := strings.Join(args, " ")
				return fmt.Errorf("there is no command %q\nhint: %s", name, meantCommand(cmd.Root(), strconv.Quote(name)))
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// NewCompletion prints the scripts of a program that packages install.
func NewCompletion(program string) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print the completion script of a shell",
		Long: fmt.Sprintf(`Prints a script by which a shell completes commands, flags, namespaces and generations.
Packages install it. Otherwise save it, for bash, as /etc/bash_completion.d/%[1]s (with the
package bash-completion installed); for zsh, as _%[1]s in a directory of $fpath; for fish, as
~/.config/fish/completions/%[1]s.fish.

Exit status: 0 fine, 2 bad use.`, program),
		Example:   fmt.Sprintf("  source <(%s completion bash)", program),
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root, w := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(w, true)
			case "zsh":
				return root.GenZshCompletion(w)
			}
			return root.GenFishCompletion(w, true)
		},
	}
}

// Words completes one of a few words.
func Words(list ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
}

// CompleteNetns offers the named network namespaces.
func CompleteNetns(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	names, _ := netns.Names()
	return names, cobra.ShellCompDirectiveNoFileComp
}
