package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/cli/answers"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/language/policy"
	"sluice/internal/prove/explain"
)

// packetFlags are what the fields of a question about a packet are called here.
var packetFlags = explain.Words{
	Fields: answers.PacketFlags,
	Unban:  func(what string) string { return "sluice unban " + what },
}

func newExplain() *cobra.Command {
	var asked explain.Question
	var described string
	var everyRule bool
	var number uint64
	cmd := &cobra.Command{
		Use:   "explain [FILE]",
		Short: "Say what a policy does with one packet, and why",
		Long: `Says what a policy (that which runs unless FILE is given, "-" for
standard input) does with one packet: the verdict with the line that decides, every
stage that the packet passes with the reason, the sets that were asked with the entry
that holds the address (file and line, country), and what the packet becomes where a
line of nat rewrites it. What no line says and always holds is shown as "not written".

Nothing is sent. The answer is read from the policy itself; what the policy was
compiled to is then asked the same, and where the two differ, that is a bug in
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

--log is about a packet of "sluice log" by its number, with all that is known of it: which
line it met then is said first, and then what the policy does with one like it now. Its
addresses are those that the line saw, behind a translation.

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
  sluice explain policy.yaml --src 8.8.8.8 --dport 443 --live
  sluice explain --log 4711`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runExplain(cmd, args, asked, described, number, everyRule)
		},
	}
	answers.AddPacket(cmd, &asked, &everyRule)
	flags := cmd.Flags()
	flags.StringVar(&described, "host", "", "ask for the host described in `FACTS.json`")
	addLabels(cmd)
	flags.Uint64Var(&number, "log", 0, "ask about the packet of a `NUMBER` of sluice log")
	for _, said := range []string{"proto", "src", "dst", "sport", "dport", "in", "out", "icmp-type", "flags", "user", "hook"} {
		cmd.MarkFlagsMutuallyExclusive("log", said)
	}
	addExplainLive(cmd)
	return cmd
}

func runExplain(cmd *cobra.Command, args []string, asked explain.Question, described string, number uint64, everyRule bool) error {
	live := given(cmd, "live")
	if live && described != "" {
		return errors.New("--live asks this host, --host another one\nhint: leave one of them out")
	}
	h, err := doorOf(cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if live {
		var stop func()
		ctx, stop = command.Interruptible(cmd)
		defer stop()
	}
	var logged *engine.Logged
	if cmd.Flags().Changed("log") {
		if logged, err = loggedAs(ctx, h, number); err != nil {
			return err
		}
		state, mark := asked.State, asked.Mark
		if asked, err = logged.Question(); err != nil {
			return fmt.Errorf("packet %d: %w", number, err)
		}
		asked.State, asked.Mark = state, mark
	}
	e, err := aboutPolicy(cmd, args, described, false, func(s *engine.Subject) (*engine.Explained, error) {
		return h.Explain(ctx, engine.Explaining{Subject: s, Question: asked, Words: packetFlags, Elsewhere: described != "", Live: live})
	})
	if err != nil {
		return err
	}
	if e.Live != nil {
		e.Live.Hint = liveHint(cmd, e)
	}
	found := e.Verdict != policy.Allow || e.Banned != "" || e.Live != nil && !e.Live.Same
	err = answer(cmd, explained{logged, e}, found && !e.Program.Differs(), func(w io.Writer) {
		if logged != nil {
			printThen(w, logged)
		}
		answers.Explained(w, e, everyRule)
	})
	if err == nil && e.Program.Differs() {
		return &explain.DiffersError{Says: e.Program.Says}
	}
	return err
}

// explained is an answer with the packet of the log that it is about, where it is of one.
type explained struct {
	Logged *engine.Logged `json:"logged,omitempty"`
	*engine.Explained
}

// loggedAs is the packet of a number.
func loggedAs(ctx context.Context, h door, number uint64) (out *engine.Logged, err error) {
	if number > 0 {
		_, err = h.Log(ctx, engine.LogQuestion{Number: number}, func(l engine.Logged) { out = &l })
	}
	if err == nil && out == nil {
		err = fmt.Errorf("no packet %d is kept\nhint: sluice log shows those that are, with their numbers", number)
	}
	return out, err
}

// printThen says what was logged of a packet.
func printThen(w io.Writer, l *engine.Logged) {
	met := "a line that is not known any more"
	if l.Line > 0 {
		met = fmt.Sprintf("%s:%d of generation %d", command.PlainName(l.File), l.Line, l.Generation)
	}
	fmt.Fprintf(w, "packet %d met %s on %s\n", l.Number, command.Paint(w, "1", met), l.Time.Local().Format(time.DateTime))
	if l.Rule != "" {
		fmt.Fprintf(w, "    %s\n", command.PlainName(l.Rule))
	}
	fmt.Fprintln(w, "\nnow:")
}
