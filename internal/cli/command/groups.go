package command

import "github.com/spf13/cobra"

// Group is a part of a program's help: its title and its commands.
type Group struct {
	Title    string // without a colon
	Commands []*cobra.Command
}

// AddGroups adds commands below root. The help, the man page and the page in docs/commands
// list the groups in this order, and the commands of each by name.
func AddGroups(root *cobra.Command, groups ...Group) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.Title, Title: g.Title + ":"})
		for _, cmd := range g.Commands {
			cmd.GroupID = g.Title
			root.AddCommand(cmd)
		}
	}
}
