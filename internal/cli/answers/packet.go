package answers

import (
	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/prove/explain"
)

// PacketFlags are what the fields of a question about a packet are called.
var PacketFlags = map[explain.Field]string{
	explain.Protocol: "--proto", explain.Source: "--src", explain.Destination: "--dst", explain.SourcePort: "--sport", explain.Port: "--dport",
	explain.In: "--in", explain.Out: "--out", explain.ICMPType: "--icmp-type", explain.Flags: "--flags", explain.User: "--user",
	explain.Hook: "--hook", explain.State: "--state", explain.Mark: "--mark", explain.Facts: "sluice facts",
}

// AddPacket gives a command the flags of a question about a packet, and of how much is told.
func AddPacket(cmd *cobra.Command, q *explain.Question, everyRule *bool) {
	flags := cmd.Flags()
	flags.StringVar(&q.Protocol, "proto", "", "`PROTOCOL`: tcp, udp, sctp, icmp or a number; tcp where nothing else is said")
	flags.StringVar(&q.Source, "src", "", "`ADDRESS` that it comes from")
	flags.StringVar(&q.Destination, "dst", "", "`ADDRESS` that it is for; without it, this host's")
	flags.StringVar(&q.SourcePort, "sport", "", "`PORT` that it comes from; without it, 40000")
	flags.StringVar(&q.Port, "dport", "", "`PORT` that it is for, as a number or a service such as https")
	flags.StringVar(&q.In, "in", "", "`INTERFACE` that it comes in by; without it, that of the route to its source")
	flags.StringVar(&q.Out, "out", "", "`INTERFACE` that it leaves by; without it, that of the route to its destination")
	flags.StringVar(&q.Mark, "mark", "", "`MARK` that it has for routing (ip rule), such as 0x1; without it, each that rules ask for")
	flags.StringVar(&q.ICMPType, "icmp-type", "", "`TYPE` of ICMP, by name or number; without it, echo-request")
	flags.StringVar(&q.Flags, "flags", "", "TCP `FLAGS`: letters, such as SA, or names, such as syn,ack; without it, what opens a connection")
	flags.StringVar(&q.User, "user", "", "`USER` of this host that sends it; without it, root")
	flags.StringVar(&q.Hook, "hook", "", "`HOOK`: input, output or forward, where the addresses do not say it")
	flags.StringVar(&q.State, "state", "", "`STATE`: new, established, related, invalid or untracked")
	flags.BoolVar(everyRule, "every-rule", false, "show each rule that does not fit, also where many in a row do not for one reason")
	command.Must(cmd.RegisterFlagCompletionFunc("proto", command.Words("tcp", "udp", "sctp", "icmp")))
	command.Must(cmd.RegisterFlagCompletionFunc("hook", command.Words("input", "forward", "output")))
	command.Must(cmd.RegisterFlagCompletionFunc("state", command.Words("new", "established", "related", "invalid", "untracked")))
}
