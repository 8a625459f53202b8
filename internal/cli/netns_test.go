package cli

import (
	"testing"

	"github.com/spf13/cobra"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/netns"
)

// What a shell completes is asked inside of the network namespace, as what a command does.
func TestCompletionInsideNetns(t *testing.T) {
	space := testnet.New(t).Namespace("completed")
	asks := &cobra.Command{
		Use: "asks",
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			name, err := netns.Name()
			if err != nil {
				t.Error(err)
			}
			return []string{name}, cobra.ShellCompDirectiveKeepOrder
		},
	}
	root := &cobra.Command{Use: "root"}
	root.PersistentFlags().String("netns", "", "")
	root.AddCommand(asks)
	insideNetns(root)
	if err := asks.ParseFlags([]string{"--netns", space.Name()}); err != nil {
		t.Fatal(err)
	}
	if words, how := asks.ValidArgsFunction(asks, nil, ""); len(words) != 1 || words[0] != space.Name() || how != cobra.ShellCompDirectiveKeepOrder {
		t.Errorf("%q, %v", words, how)
	}
}
