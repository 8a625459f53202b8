package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/system/host"
)

func newFacts() *cobra.Command {
	var lookUp bool
	cmd := &cobra.Command{
		Use:   "facts",
		Short: "Print the facts about this host, for compiling elsewhere",
		Long: `Prints what Sluice knows about this host: interfaces, addresses, routes, routing rules (ip
rule), the rules of other tools, published ports, connection tracking, resolvers, who is logged
in over ssh, and the package mirrors and time servers that programs are configured to use. It
changes nothing.

Names of mirrors and time servers are looked up in /etc/hosts; with --look-up also by the host's
resolver, for at most two seconds.

With --json the output can be read by "sluice compile --host FILE", so that you can compile a
policy on one machine for another.

Reading the rules of other tools needs root (CAP_NET_ADMIN); what could not be read is listed.

Exit status: 0 fine, 2 the host could not be read.`,
		Example: "  sluice facts --json > host.json\n  sluice compile policy.yaml --host host.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			facts, err := readFacts(cmd.Context(), "", optionsOf(cmd))
			if err != nil {
				return err
			}
			facts.ReadRouting()
			var patience time.Duration
			if lookUp {
				patience = 2 * time.Second
			}
			facts.ReadServers(cmd.Context(), patience)
			if optionsOf(cmd).json {
				return command.PrintJSON(cmd.OutOrStdout(), facts)
			}
			printFacts(cmd.OutOrStdout(), facts)
			return nil
		},
	}
	cmd.Flags().BoolVar(&lookUp, "look-up", false, "look names of mirrors and time servers up by the resolver")
	return cmd
}

// readFacts takes the facts of a host from the file that "sluice facts --json"
// wrote, or describes this one.
func readFacts(ctx context.Context, file string, o options) (host.Facts, error) {
	if file == "" {
		return engine.Facts(ctx, o.stateDir, o.netns, host.OwnSession())
	}
	return engine.ReadFacts(file)
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
	printRouting(w, f.Routing)
	fmt.Fprintf(w, "forwarding   ipv4 %s, ipv6 %s\n", onOff(f.Forwarding4), onOff(f.Forwarding6))
	fmt.Fprintf(w, "own ports    %d-%d\n", f.EphemeralFrom, f.EphemeralTo)
	fmt.Fprintf(w, "conntrack    %d of %d entries, %d buckets\n", f.ConntrackCount, f.ConntrackMax, f.ConntrackBuckets)
	fmt.Fprintf(w, "memory       %d MiB\n", f.MemoryBytes>>20)
	for _, a := range f.Resolvers {
		fmt.Fprintf(w, "resolver     %s\n", a)
	}
	for _, s := range f.Servers {
		printServer(w, s)
	}
	for _, a := range f.Gateways {
		fmt.Fprintf(w, "router       %s\n", a)
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
	for _, other := range f.Firewalls {
		fmt.Fprintf(w, "firewall     %s starts with the host\n", other.Unit)
	}
	for _, p := range f.Published {
		fmt.Fprintf(w, "published    %s\n", p)
	}
	for _, p := range f.SSHClients {
		unproved := ""
		if p.Unproved {
			unproved = ", not known to be logged in"
		}
		fmt.Fprintf(w, "ssh peer     %s to %s%s\n", p.Remote, p.Local, unproved)
	}
	for _, o := range f.OuterFlows {
		fmt.Fprintf(w, "outer flow   %s\n", o)
	}
	for _, line := range f.Unread {
		fmt.Fprintf(w, "not read     %s\n", line)
	}
}

// printRouting prints the rules and routes but those that every host has for its
// own addresses.
func printRouting(w io.Writer, r *host.Routing) {
	if r == nil {
		return
	}
	for _, rule := range r.Rules {
		fmt.Fprintf(w, "rule         %s\n", rule)
	}
	for _, route := range r.Routes {
		if route.Table != 255 {
			fmt.Fprintf(w, "route        %s\n", route)
		}
	}
}

func printServer(w io.Writer, s host.Server) {
	what := map[host.Role]string{host.Mirror: "mirror", host.TimeServer: "time server"}[s.Role]
	text := fmt.Sprintf("%s %s/%d", s.Name, s.Protocol, s.Port)
	if s.FromPort != 0 {
		text += fmt.Sprintf(" asked from port %d", s.FromPort)
	}
	for _, a := range s.Addresses {
		if a.String() != s.Name {
			text += " " + a.String()
		}
	}
	fmt.Fprintf(w, "%-12s %s (%s)\n", what, text, s.File)
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
