package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// The library writes the commands below another into one list, by name. The help has
// groups, and so have the pages.

// seeCommand is the line of a command in a Markdown page: its name and what it does.
var seeCommand = regexp.MustCompile(`(?m)^\* \[[a-z-]+ ([a-z]+)\]\(.*\n`)

// groupMarkdown moves the commands in the file of a program into the groups of its help.
func groupMarkdown(root *cobra.Command, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := map[string][]string{} // by group
	rest := seeCommand.ReplaceAllStringFunc(string(text), func(line string) string {
		cmd, _, _ := root.Find(seeCommand.FindStringSubmatch(line)[1:])
		lines[cmd.GroupID] = append(lines[cmd.GroupID], strings.ReplaceAll(line, "\t -", ":"))
		return ""
	})
	var list strings.Builder
	list.WriteString("### Commands\n")
	for _, g := range groupsOf(root) {
		fmt.Fprintf(&list, "\n%s\n\n%s", g.Title, strings.Join(lines[g.ID], ""))
	}
	return os.WriteFile(file, []byte(strings.Replace(rest, "### SEE ALSO\n\n\n", list.String(), 1)), 0o644)
}

// groupMan lists the commands of a program, with what each does, before the end of its page.
func groupMan(cmd *cobra.Command, page string) string {
	if len(cmd.Groups()) == 0 {
		return page
	}
	var list strings.Builder
	list.WriteString(".SH COMMANDS\n")
	for _, g := range groupsOf(cmd) {
		fmt.Fprintf(&list, ".SS %s\n", strings.TrimSuffix(g.Title, ":"))
		for _, c := range cmd.Commands() {
			if c.GroupID == g.ID && c.IsAvailableCommand() {
				fmt.Fprintf(&list, ".TP\n\\fB%s\\fP\n%s\n", c.Name(), c.Short)
			}
		}
	}
	return strings.Replace(page, ".SH SEE ALSO\n", list.String()+"\n\n.SH SEE ALSO\n", 1)
}

// groupsOf ends with the commands that are in no group.
func groupsOf(cmd *cobra.Command) []*cobra.Group {
	return append(cmd.Groups(), &cobra.Group{Title: "Additional commands:"})
}
