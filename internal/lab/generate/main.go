// Command generate writes the reference pages, man pages and shell completions of both
// programs: generate DIRECTORY. scripts/generate calls it.
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
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"sluice/internal/cli"
	labcli "sluice/internal/lab/cli"
	"sluice/internal/language/policy"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/check"
)

// manDate stands in the man pages, so that they are the same on every day that
// they are generated; it is moved with a release.
var manDate = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)

func main() {
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(2)
	}
}

// generate writes everything below docs/ that comes from the code.
func generate(dir string) error {
	for _, name := range []string{"reference", "commands", "man", "completion"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	for name, data := range map[string][]byte{
		"language.md":        policy.Reference(),
		"policy.schema.json": policy.Schema(),
		"passes.md":          optimize.Reference(),
		"lint.md":            check.Reference(),
	} {
		if err := os.WriteFile(filepath.Join(dir, "reference", name), data, 0o644); err != nil {
			return err
		}
	}
	return errors.Join(generateProgram(cli.Root(), dir), generateProgram(labcli.Root(), dir))
}

// generateProgram writes the pages, man pages and completions of a program.
func generateProgram(root *cobra.Command, dir string) error {
	root.DisableAutoGenTag = true // it would name the day
	root.InitDefaultHelpCmd()
	if err := doc.GenMarkdownTree(root, filepath.Join(dir, "commands")); err != nil {
		return err
	}
	if err := generateMan(root, filepath.Join(dir, "man")); err != nil {
		return err
	}
	completion, name := filepath.Join(dir, "completion"), root.Name()
	return errors.Join(
		root.GenBashCompletionFileV2(filepath.Join(completion, name+".bash"), true),
		root.GenZshCompletionFile(filepath.Join(completion, "_"+name)),
		root.GenFishCompletionFile(filepath.Join(completion, name+".fish"), true),
	)
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
	header := &doc.GenManHeader{Section: "1", Source: "Sluice", Manual: "Sluice manual", Date: &manDate}
	if err := doc.GenMan(cmd, header, &page); err != nil {
		return err
	}
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
	return os.WriteFile(filepath.Join(dir, name), []byte(manFlags(cmd, page.String())), 0o644)
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
