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
	flags.StringVar(&q.Protocol, "proto", "", "`PROTOCOL`: tcp, udp, sctp, icmp or a number; tcp by default")
	flags.StringVar(&q.Source, "src", "", "source `ADDRESS`")
	flags.StringVar(&q.Destination, "dst", "", "destination `ADDRESS`; by default this host's")
	flags.StringVar(&q.SourcePort, "sport", "", "source `PORT`; 40000 by default")
	flags.StringVar(&q.Port, "dport", "", "destination `PORT`, as a number or a service such as https")
	flags.StringVar(&q.In, "in", "", "`INTERFACE` that it comes in by; by default the one of the route to its source")
	flags.StringVar(&q.Out, "out", "", "`INTERFACE` that it leaves by; by default the one of the route to its destination")
	flags.StringVar(&q.Mark, "mark", "", "`MARK` that it has for routing (ip rule), such as 0x1; by default each that routing rules match")
	flags.StringVar(&q.ICMPType, "icmp-type", "", "ICMP `TYPE`, by name or number; echo-request by default")
	flags.StringVar(&q.Flags, "flags", "", "TCP `FLAGS`: letters, such as SA, or names, such as syn,ack; by default SYN")
	flags.StringVar(&q.User, "user", "", "`USER` of this host that sends it; root by default")
	flags.StringVar(&q.Hook, "hook", "", "`HOOK`: input, output or forward, if the addresses leave it open")
	flags.StringVar(&q.State, "state", "", "`STATE`: new, established, related, invalid or untracked")
	flags.BoolVar(everyRule, "every-rule", false, "show each rule that does not match, even if many in a row do not for the same reason")
	command.Must(cmd.RegisterFlagCompletionFunc("proto", command.Words("tcp", "udp", "sctp", "icmp")))
	command.Must(cmd.RegisterFlagCompletionFunc("hook", command.Words("input", "forward", "output")))
	command.Must(cmd.RegisterFlagCompletionFunc("state", command.Words("new", "established", "related", "invalid", "untracked")))
}
