package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/host"
)

func newFacts() *cobra.Command {
	return &cobra.Command{
		Use:   "facts",
		Short: "Print what this host is, for compiling on another one",
		Long: `Prints what Sluice knows of this host: interfaces, addresses, default routes,
the rules of other tools, published ports, connection tracking, resolvers and
who is logged in over ssh. It changes nothing.

With --json the output is what "sluice compile --host FILE" reads, so that a
policy can be compiled on one machine for another.

Reading the rules of other tools needs root (CAP_NET_ADMIN); what could not be
read is named.

Exit status: 0 fine, 2 the host could not be read.`,
		Example: "  sluice facts --json > host.json\n  sluice compile policy.yaml --host host.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			facts, err := readFacts(cmd.Context(), "", optionsOf(cmd))
			if err != nil {
				return err
			}
			if optionsOf(cmd).json {
				return printJSON(cmd.OutOrStdout(), facts)
			}
			printFacts(cmd.OutOrStdout(), facts)
			return nil
		},
	}
}

func printFacts(w io.Writer, f host.Facts) {
	for _, i := range f.Interfaces {
		var words []string
		for _, a := range i.Addresses {
			words = append(words, a.String())
		}
		if i.Master != "" {
			words = append(words, "port of "+i.Master)
		}
		if !i.Up {
			words = append(words, "down")
		}
		fmt.Fprintf(w, "interface    %s (%s) %s\n", i.Name, i.Kind, strings.Join(words, " "))
	}
	fmt.Fprintf(w, "default      %s\n", orNone(strings.Join(f.DefaultRoute, " ")))
	fmt.Fprintf(w, "forwarding   ipv4 %s, ipv6 %s\n", onOff(f.Forwarding4), onOff(f.Forwarding6))
	fmt.Fprintf(w, "own ports    %d-%d\n", f.EphemeralFrom, f.EphemeralTo)
	fmt.Fprintf(w, "conntrack    %d of %d entries, %d buckets\n", f.ConntrackCount, f.ConntrackMax, f.ConntrackBuckets)
	fmt.Fprintf(w, "memory       %d MiB\n", f.MemoryBytes>>20)
	for _, a := range f.Resolvers {
		fmt.Fprintf(w, "resolver     %s\n", a)
	}
	for _, c := range f.ForeignChains {
		can := "does not drop"
		if c.Drops {
			can = "may drop"
		}
		legacy := ""
		if c.Legacy {
			legacy = " (legacy iptables)"
		}
		fmt.Fprintf(w, "other chain  %s %s %s: %s at %s priority %d, %s%s\n", c.Family, c.Table, c.Name, c.Type, c.Hook, c.Priority, can, legacy)
	}
	for _, p := range f.Published {
		fmt.Fprintf(w, "published    %s\n", p)
	}
	for _, p := range f.SSHPeers {
		fmt.Fprintf(w, "ssh peer     %s to %s\n", p.Remote, p.Local)
	}
	for _, line := range f.Unread {
		fmt.Fprintf(w, "not read     %s\n", line)
	}
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func onOff(v bool) string {
	if v {
		return "on"
	}
	return "off"
}
