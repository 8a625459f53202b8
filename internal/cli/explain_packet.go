package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"sluice/internal/backend"
	"sluice/internal/base/packet"
	"sluice/internal/cli/command"
	"sluice/internal/language/policy"
	"sluice/internal/prove/reference"
)

// explained is a packet, and what the policy makes of it.
type explained struct {
	pipeline
	packet    packet.Packet // as it was asked
	way       packet.Way
	path      reference.Path
	ways      []wayTaken // all that routing may choose; packet and path are the first
	unsure    []string   // why there are several
	assumed   []string   // what was filled in, for a reader
	live      *liveView  // with --live
	everyRule bool
	can       backend.Capabilities // of the kernel; none where the host is another
	elsewhere bool                 // the host is another than this one
	cost      *packetCostView
}

func newExplain() *cobra.Command {
	var asked askedPacket
	var described string
	var everyRule bool
	cmd := &cobra.Command{
		Use:   "explain [FILE]",
		Short: "Say what a policy does with one packet, and why",
		Long: `Says what a policy (that which runs unless FILE is given, "-" for
standard input) does with one packet: the verdict with the line that decides, every
stage that the packet passes with the reason, the sets that were asked with the entry
that holds the address (file and line, country), and what the packet becomes where a
line of nat rewrites it. What no line says and always holds is shown as "not written".

Nothing is sent. The answer is read from the policy itself; what the policy was
compiled to is then asked the same, and where the two differ, that is a fault of
Sluice and an error.

Of the packet, say what you know. Without --dst it is for this host, at the address
and by the interface that its source reaches; without --src, or with --user, this
host sends it; with a --dst elsewhere and a --src elsewhere it is forwarded. Protocols
that have ports need --dport. --state is what connection tracking says of the packet;
without it, the packet is of no connection that is known, so that it begins one or
is invalid, or untracked where the policy bypasses. Limits count as not reached.
Bans are not in the policy when a command or a limit made them; one by command is
said first, one by a limit is in "sluice bans" and in the answer of --live.

Routing is asked for the packet as the kernel would be (source, destination, interface,
mark, protocol, ports, user): whether it is for this host, and by which interface it
goes on. On this host the kernel is asked; with --host the rules and routes of the
facts are. A packet that routing leads nowhere is dropped. Where the way cannot be known
(several next hops, of which a hash of the flow chooses; a rule on a mark, without
--mark; an address that several interfaces lead to) all ways are followed: if they end
alike, that is the answer, and if not, there is no verdict but each way with its own.

What the rules cost the packet is what it meets on its way, connection tracking apart.` + costsHelp + `
` + liveHelp + `

Exit status: 0 the packet is allowed, 1 it is dropped or rejected, be it by a ban by
command, or whether it is depends on what is not known, or the loaded firewall does
otherwise, 2 bad use, a bad policy, or a bug in Sluice.
Environment: SLUICE_STATE_DIR.
Files: /etc/sluice/policy.yaml, country data and lists in /var/lib/sluice.`,
		Example: `  sluice explain policy.yaml --src 8.8.8.8 --dport 443
  sluice explain policy.yaml --src 8.8.8.8 --sport 53 --proto udp --dport 40000 --state established
  sluice explain policy.yaml --dst 203.0.113.25 --dport 25 --user postfix
  sluice explain policy.yaml --src 203.0.113.7 --icmp-type echo-request --json
  sluice explain policy.yaml --src 8.8.8.8 --dport 443 --live`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := optionsOf(cmd)
			facts, err := readFacts(cmd.Context(), described, o)
			if err != nil {
				return err
			}
			e := explained{pipeline: pipeline{options: o, facts: facts, warn: cmd.ErrOrStderr()}, everyRule: everyRule, elsewhere: described != ""}
			file, back, err := e.subject(cmd, args, described)
			if err != nil {
				return err
			}
			defer back()
			if e.costs.elsewhere = e.elsewhere; !e.elsewhere {
				e.costs = o.costs()
			}
			e.costs.tell(cmd.ErrOrStderr())
			if err := e.asLoaded(cmd); err != nil {
				return err
			}
			if !e.elsewhere {
				e.facts.ReadRouting()
			}
			if err := e.read(cmd.Context(), file, asked); err != nil {
				return err
			}
			if err := e.askLive(cmd, described); err != nil {
				return err
			}
			return e.show(cmd)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&asked.protocol, "proto", "", "`PROTOCOL`: tcp, udp, sctp, icmp or a number; tcp where nothing else is said")
	flags.StringVar(&asked.source, "src", "", "`ADDRESS` that it comes from")
	flags.StringVar(&asked.destination, "dst", "", "`ADDRESS` that it is for; without it, this host's")
	flags.StringVar(&asked.sourcePort, "sport", "", "`PORT` that it comes from; without it, 40000")
	flags.StringVar(&asked.port, "dport", "", "`PORT` that it is for, as a number or a service such as https")
	flags.StringVar(&asked.in, "in", "", "`INTERFACE` that it comes in by; without it, that of the route to its source")
	flags.StringVar(&asked.out, "out", "", "`INTERFACE` that it leaves by; without it, that of the route to its destination")
	flags.StringVar(&asked.mark, "mark", "", "`MARK` that it has for routing (ip rule), such as 0x1; without it, each that rules ask for")
	flags.StringVar(&asked.icmpType, "icmp-type", "", "`TYPE` of ICMP, by name or number; without it, echo-request")
	flags.StringVar(&asked.flags, "flags", "", "TCP `FLAGS`: letters, such as SA, or names, such as syn,ack; without it, what opens a connection")
	flags.StringVar(&asked.user, "user", "", "`USER` of this host that sends it; without it, root")
	flags.StringVar(&asked.hook, "hook", "", "`HOOK`: input, output or forward, where the addresses do not say it")
	flags.StringVar(&asked.state, "state", "", "`STATE`: new, established, related, invalid or untracked")
	flags.BoolVar(&everyRule, "every-rule", false, "show each rule that does not fit, also where many in a row do not for one reason")
	flags.StringVar(&described, "host", "", "ask for the host described in `FACTS.json`")
	addExplainLive(cmd)
	command.Must(cmd.RegisterFlagCompletionFunc("proto", command.Words("tcp", "udp", "sctp", "icmp")))
	command.Must(cmd.RegisterFlagCompletionFunc("hook", command.Words("input", "forward", "output")))
	command.Must(cmd.RegisterFlagCompletionFunc("state", command.Words("new", "established", "related", "invalid", "untracked")))
	return cmd
}

// asLoaded has the policy compiled as an apply here would compile it: for this
// kernel, with the rules in the order that the running policy has them in.
func (e *explained) asLoaded(cmd *cobra.Command) error {
	if e.elsewhere {
		return nil
	}
	h, err := hostOf(cmd)
	if err != nil {
		return err
	}
	e.can, e.profile = e.options.capabilities(cmd.Context()), h.Profile()
	return nil
}

// read resolves the policy and follows the packet through it.
func (e *explained) read(ctx context.Context, file string, asked askedPacket) error {
	if err := e.resolve(ctx, file); err != nil {
		return err
	}
	var err error
	if asked.ask = e.facts.Kernel; e.elsewhere {
		asked.ask = e.facts.Route
	}
	if e.packet, e.way, err = asked.read(e.facts, e.resolved); err != nil {
		return err
	}
	e.follow(asked)
	if e.undecided() {
		e.unsure = e.doubts(asked)
	}
	e.assumed = asked.assumed(e.packet, e.way, e.names(wayTaken.in), e.names(wayTaken.out))
	return nil
}

// show prints the answer, and ends as the packet does.
func (e *explained) show(cmd *cobra.Command) error {
	view, err := e.view()
	if err != nil {
		return err
	}
	if e.options.json {
		err = command.PrintJSON(cmd.OutOrStdout(), view)
	} else {
		e.print(cmd.OutOrStdout(), view)
	}
	switch {
	case err != nil:
		return err
	case view.Program.Agrees != nil && !*view.Program.Agrees:
		return fmt.Errorf("the compiled rules do otherwise: %s\nhint: this is a bug in Sluice, not of the policy; trust neither answer, and report it with the policy", view.Program.Says)
	case view.Verdict != policy.Allow, view.Banned != "", e.live != nil && !e.live.Same:
		return command.ErrFound
	}
	return nil
}
