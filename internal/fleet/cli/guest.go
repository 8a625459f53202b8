package cli

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/base/regular"
	"sluice/internal/base/selector"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/trust"
)

func newGuest() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "guest",
		Short: "Create, move, list and remove the machines on hosts",
		Long: `Guests are the machines on the hosts of the fleet. Sets by guests hold their addresses, and
parts with "guests:" restrict each to its own. Changes here need no signature of the policy
keys: the controller's live key signs them, within what the policy allows.`,
		Args: cobra.NoArgs,
		RunE: help,
	}
	cmd.AddCommand(newGuestPut(), newGuestList(), newGuestShow(), newGuestRemove())
	return cmd
}

func newGuestPut() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "put GUEST [NAME=VALUE...]",
		Short: "Create a guest, change it, or move it to another host",
		Long: `Says where a guest is and which labels it has, replacing all that was said before. A guest that
moves to another host also stays where it was until the new host has proved it.

--rules gives it its owner's own rules: a file in the policy language with forward, expect,
services and sets, for what is forwarded to or from this guest only. The set "me" has the guest's
addresses. These rules come after those of all parts.

Its addresses must lie within what the sets that select it may hold ("within"), and no other guest
may have one of them, or its interface. The interface is in the host's own network namespace, or
with --netns in another one, which the host's agent must serve ("namespaces" in agent.yaml);
parts with "enforce: namespace" are in force there.

Exit status: 0 the fleet has it ("guest show" shows where it is proved); 2 bad use, it is
refused, or no controller answers.`,
		Example: `  sluice-controller guest put vm-1 app=api --host hv-1 --interface tap0 --address 10.30.0.5
  sluice-controller guest put vm-2 app=api --host hv-1 --netns qrouter-7 --interface tap0 --address 10.30.0.6
  sluice-controller guest put vm-1 app=api --host hv-2 --interface tap7 --address 10.30.0.5 --public 203.0.113.9`,
		Args: cobra.MinimumNArgs(1),
		RunE: putGuest,
	}
	addController(cmd)
	cmd.Flags().String("host", "", "put it on `HOST`")
	cmd.Flags().String("interface", "", "the host's `INTERFACE` that leads to it")
	cmd.Flags().String("netns", "", "the network `NAMESPACE` of the host that the interface is in")
	cmd.Flags().StringSlice("address", nil, "its `ADDRESS`; repeatable, or with commas")
	cmd.Flags().StringSlice("public", nil, "an `ADDRESS` that reaches it from outside; repeatable, or with commas")
	cmd.Flags().String("rules", "", "`FILE` of its owner's rules, - for standard input")
	for _, name := range []string{"host", "interface", "address"} {
		command.Must(cmd.MarkFlagRequired(name))
	}
	return cmd
}

func putGuest(cmd *cobra.Command, args []string) error {
	var g api.NewGuest
	g.Host, _ = cmd.Flags().GetString("host")
	g.Interface, _ = cmd.Flags().GetString("interface")
	g.Netns, _ = cmd.Flags().GetString("netns")
	for flag, into := range map[string]*[]netip.Addr{"address": &g.Addresses, "public": &g.Public} {
		texts, _ := cmd.Flags().GetStringSlice(flag)
		for _, text := range texts {
			a, err := netip.ParseAddr(strings.TrimSpace(text))
			if err != nil {
				return fmt.Errorf("--%s: %q is not an address", flag, text)
			}
			*into = append(*into, a)
		}
	}
	var err error
	if g.Labels, err = readLabels(args[1:]); err != nil {
		return err
	}
	if file, _ := cmd.Flags().GetString("rules"); file != "" {
		var text []byte
		var err error
		if file == "-" {
			text, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), trust.MaxRules+1))
		} else {
			text, err = regular.Read(file, trust.MaxRules)
		}
		if err != nil {
			return err
		}
		g.Rules = string(text)
	}
	now, err := controllerOf(cmd).PutGuest(cmd.Context(), args[0], g)
	if err != nil {
		return hinted(err)
	}
	if command.JSON(cmd) {
		return command.PrintJSON(cmd.OutOrStdout(), now)
	}
	printGuests(cmd.OutOrStdout(), []api.Guest{*now})
	return nil
}

func newGuestList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [SELECTOR]",
		Short: "List guests, and where they are proved",
		Long: `Lists the guests of the fleet, or those whose labels a selector matches. A guest is proved
when each host concerned has proved that it enforces what the guest is now: its own host,
and those whose policies use a set that it is in.

Exit status: 0 all of them are proved, 1 some are not, 2 bad use, or no controller answers.`,
		Example: "  sluice-controller guest list\n  sluice-controller guest list 'app=api and env=prod' --host hv-1",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			only := ""
			if len(args) > 0 {
				s, err := selector.Parse(args[0])
				if err != nil {
					return err
				}
				only = s.String()
			}
			host, _ := cmd.Flags().GetString("host")
			all, err := controllerOf(cmd).Guests(cmd.Context(), only, host)
			if err != nil {
				return hinted(err)
			}
			return showGuests(cmd, all)
		},
	}
	addController(cmd)
	cmd.Flags().String("host", "", "only those on `HOST`")
	return cmd
}

func newGuestShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show GUEST",
		Short: "Show where a guest is, and whether that is proved",
		Long: `Shows where a guest is, and which of the hosts concerned have not yet proved its current state.

Exit status: 0 it is proved, 1 it is not, 2 bad use, there is no such guest, or no
controller answers.`,
		Example: "  sluice-controller guest show vm-1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			g, err := controllerOf(cmd).Guest(cmd.Context(), args[0])
			if err != nil {
				return hintedGuest(err)
			}
			return showGuests(cmd, []api.Guest{*g})
		},
	}
	addController(cmd)
	return cmd
}

func newGuestRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove GUEST",
		Short: "Remove a guest",
		Long: `Removes a guest: it is no longer in any set, and another guest may have its addresses.

Exit status: 0 removed, 2 bad use, there is no such guest, or no controller answers.`,
		Example: "  sluice-controller guest remove vm-1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := controllerOf(cmd).RemoveGuest(cmd.Context(), args[0]); err != nil {
				return hintedGuest(err)
			}
			if command.JSON(cmd) {
				return command.PrintJSON(cmd.OutOrStdout(), map[string]string{"removed": args[0]})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is removed\n", args[0])
			return nil
		},
	}
	addController(cmd)
	return cmd
}

func showGuests(cmd *cobra.Command, all []api.Guest) error {
	if command.JSON(cmd) {
		if all == nil {
			all = []api.Guest{}
		}
		if err := command.PrintJSON(cmd.OutOrStdout(), map[string][]api.Guest{"guests": all}); err != nil {
			return err
		}
	} else {
		printGuests(cmd.OutOrStdout(), all)
	}
	for _, g := range all {
		if !g.Proved {
			return command.ErrFound
		}
	}
	return nil
}

func printGuests(w io.Writer, all []api.Guest) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no guest")
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, g := range all {
		state := command.Paint(w, "32", "proved")
		if !g.Proved {
			state = command.Paint(w, "33", "not yet")
		}
		addresses := make([]string, 0, len(g.Addresses))
		for _, a := range g.Addresses {
			addresses = append(addresses, a.String())
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", g.Guest, state, strings.Join(strings.Fields(g.Host+" "+g.Netns+" "+g.Interface), " "), strings.Join(addresses, " "), selector.LabelText(g.Labels))
	}
	_ = table.Flush()
	for _, g := range all {
		if len(g.Leaving) > 0 {
			fmt.Fprintf(w, "%s stays on %s until %s has proved it\n", g.Guest, english.List(g.Leaving), g.Host)
		}
		if g.Error != "" {
			fmt.Fprintf(w, "%s: host %s says: %s\n", g.Guest, g.Host, strings.ReplaceAll(g.Error, "\n", "\n  "))
		}
		if len(g.Waiting) > 0 && len(all) == 1 {
			fmt.Fprintf(w, "%s concerned; waiting for %s\n", english.Plural(g.Concerned, "host"), english.List(g.Waiting))
		}
	}
}
