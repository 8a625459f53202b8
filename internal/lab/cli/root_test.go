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
		"doctor":                      "at least one of the flags in the group [corpus measure] is required",
		"doctor --measure --pick 2":   "--measure and --pick exclude each other",
		"doctor --measure --rounds 2": "--rounds 2: give 3 or more",
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
