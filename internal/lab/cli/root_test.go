package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
)

// Every command has its flags from one place: help, completion and the flags of all
// commands know them.
func TestCommandsOfTheTree(t *testing.T) {
	for line, want := range map[string]string{
		"kernels 6.1":                 `unknown command "6.1"`,
		"kernels --none":              "unknown flag: --none",
		"kernels --core --json":       "with the core tests alone nothing is measured",
		"kernels --sections none":     `no section is called "none"`,
		"kernels --save /dev/null":    "--save: /dev/null is not a regular file",
		"stress --enough soon":        "--enough \"soon\": not a duration",
		"stress --run [":              "--run: error parsing regexp",
		"stress applies":              `unknown command "applies"`,
		"doctor":                      `required flag(s) "corpus" not set`,
		"doctor --corpus . --pick -1": "--pick -1",
		"stress --save /dev/null":     "--save: /dev/null is not a regular file",
		"demo --netns sl-not-there":   "sl-not-there",
	} {
		var out, errOut bytes.Buffer
		if status := command.Run(Root(), strings.Fields(line), nil, &out, &errOut); status != 2 || !strings.Contains(errOut.String(), want) {
			t.Errorf("%s: status %d\n%s", line, status, &errOut)
		}
	}
}

func TestInterrupted(t *testing.T) {
	root, below := &cobra.Command{Use: "root"}, &cobra.Command{
		Use: "below", RunE: func(*cobra.Command, []string) error { return fmt.Errorf("run nft: %w", context.Canceled) },
	}
	root.AddCommand(below)
	tellInterrupted(root)
	var out, errOut bytes.Buffer
	if status := command.Run(command.Root(root), []string{"below"}, nil, &out, &errOut); status != 130 || errOut.String() != "interrupted\n" {
		t.Errorf("status %d: %s", status, &errOut)
	}
}
