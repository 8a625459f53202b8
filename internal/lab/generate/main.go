// Command generate writes what comes from the code of the three programs, a folder of DIRECTORY
// for each part: generate DIRECTORY PART... scripts/generate has it write docs/reference,
// docs/commands and the tables of figures; make build bin/man and bin/completion, which are installed.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"sluice"
	"sluice/internal/agent/config"
	"sluice/internal/cli"
	"sluice/internal/doctor"
	"sluice/internal/engine"
	fleetcli "sluice/internal/fleet/cli"
	"sluice/internal/fleet/controller"
	"sluice/internal/fleet/inventory"
	"sluice/internal/fleet/notices"
	labcli "sluice/internal/lab/cli"
	"sluice/internal/lab/kernelbench"
	"sluice/internal/language/policy"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/check"
)

func main() {
	if err := generate(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(2)
	}
}

// generate writes the parts into folders of dir that are named after them.
func generate(dir string, parts []string) error {
	// It is the default of a flag, and would show in the pages.
	if err := os.Unsetenv("SLUICE_STATE_DIR"); err != nil {
		return err
	}
	for _, part := range parts {
		into := filepath.Join(dir, part)
		if err := os.MkdirAll(into, 0o755); err != nil {
			return err
		}
		if own := map[string]func(string) error{"reference": generateReference, "figures": generateFigures}[part]; own != nil {
			if err := own(into); err != nil {
				return err
			}
			continue
		}
		for _, root := range []*cobra.Command{cli.Root(), fleetcli.Root(), labcli.Root()} {
			root.DisableAutoGenTag = true // it would name the day
			root.InitDefaultHelpCmd()
			if err := generateProgram(root, part, into); err != nil {
				return err
			}
		}
	}
	return nil
}

// generateReference writes the pages of the policy language, of the passes and findings.
func generateReference(dir string) error {
	for name, data := range map[string][]byte{
		"language.md":           policy.Reference(),
		"policy.schema.json":    policy.Schema(),
		"agent.md":              config.Reference(),
		"agent.schema.json":     config.Schema(),
		"inventory.md":          inventory.Reference(),
		"inventory.schema.json": inventory.Schema(),
		"notices.md":            notices.Reference(),
		"notices.schema.json":   notices.Schema(),
		"passes.md":             optimize.Reference(),
		"lint.md":               check.Reference(),
		"doctor.md":             doctor.Reference(),
		"metrics.md":            engine.MetricsReference(),
		"fleet-metrics.md":      controller.MetricsReference(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// figurePage has tables of measured figures between markers.
const figurePage = "docs/internals/benchmarks.md"

// generateFigures writes figurePage of the tree, whose root it runs in, with the tables of
// what was recorded.
func generateFigures(dir string) error {
	old, err := os.ReadFile(figurePage)
	if err != nil {
		return err
	}
	text, err := kernelbench.Pages(string(old))
	if err != nil {
		return fmt.Errorf("%s: %w", figurePage, err)
	}
	if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, figurePage)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, figurePage), []byte(text), 0o644)
}

// generateProgram writes a part that each program has.
func generateProgram(root *cobra.Command, part, dir string) error {
	switch part {
	case "commands":
		if err := doc.GenMarkdownTree(root, dir); err != nil {
			return err
		}
		return groupMarkdown(root, filepath.Join(dir, root.Name()+".md"))
	case "man":
		return generateMan(root, dir)
	case "completion":
		file := filepath.Join(dir, root.Name())
		return errors.Join(
			root.GenBashCompletionFileV2(file+".bash", true),
			root.GenZshCompletionFile(filepath.Join(dir, "_"+root.Name())),
			root.GenFishCompletionFile(file+".fish", true),
		)
	}
	return fmt.Errorf("no part %q: reference, commands, figures, man or completion", part)
}

// generateMan writes the page of a command and those of the commands below it.
func generateMan(cmd *cobra.Command, dir string) error {
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := generateMan(c, dir); err != nil {
			return err
		}
	}
	var page bytes.Buffer
	header := &doc.GenManHeader{Section: "1", Source: "Sluice", Manual: "Sluice manual", Date: &sluice.Released}
	if err := doc.GenMan(cmd, header, &page); err != nil {
		return err
	}
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
	return os.WriteFile(filepath.Join(dir, name), []byte(groupMan(cmd, manFlags(cmd, page.String()))), 0o644)
}

// manFlag is a flag in a man page as the library writes it: --wait=10s, with its
// usage on the next line.
var manFlag = regexp.MustCompile(`(?m)^((?:\\fB-\w\\fP, )?\\fB--([a-z0-9-]+)\\fP)\[?=.*\n\t.*$`)

// manFlags writes the flags of a man page as --help does.
func manFlags(cmd *cobra.Command, page string) string {
	return manFlag.ReplaceAllStringFunc(page, func(text string) string {
		parts := manFlag.FindStringSubmatch(text)
		flag := cmd.Flag(parts[2])
		if flag == nil {
			return text
		}
		value, usage := pflag.UnquoteUsage(flag)
		if value != "" {
			value = ` \fI` + value + `\fP`
		}
		switch d := flag.DefValue; {
		case slices.Contains([]string{"", "false", "0", "[]"}, d):
		case flag.Value.Type() == "string":
			usage += fmt.Sprintf(" (default %q)", d)
		default:
			usage += fmt.Sprintf(" (default %s)", d)
		}
		return parts[1] + value + "\n\t" + strings.ReplaceAll(usage, `\`, `\e`)
	})
}
