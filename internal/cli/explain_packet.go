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

func newExplain() *cobra.Command {
	var asked explain.Question
	var described string
	var everyRule bool
	var number uint64
	cmd := &cobra.Command{
		Use:   "explain [FILE]",
		Short: "Show what a policy does with one packet, and why",
		Long: `Shows what a policy (the running one unless you give FILE, standard input for -) does with one
packet: the verdict and the line that decides, every stage that the packet passes and why, the
sets that were looked up with the entry that holds the address (file and line, country), and
what NAT makes of the packet. Behaviour that no line of the policy states is marked
"built in".

Nothing is sent. The answer is read from the policy itself; the compiled rules are evaluated
for the same packet, and if the two differ, that is a bug in Sluice and an error.

Describe the packet as far as you know it. Without --dst it is for this host, at the address
and by the interface that its source reaches; without --src, or with --user, this host sends
it; with both --dst and --src elsewhere it is forwarded. Protocols with ports need --dport.
--state is the packet's state in connection tracking; without it the packet belongs to no known
connection: it begins one or is invalid, or is untracked if the policy bypasses tracking.
Limits count as not reached. Bans made by command on this host come first in the answer, with
when they end and what lifts them, and so do those by a limit if the packet is explained by the
running policy; with FILE, those are a note.

Routing decides as in the kernel (source, destination, interface, mark, protocol, ports, user)
whether the packet is for this host, and by which interface it leaves: the kernel's routing on
this host, the rules and routes of the facts with --host. A packet without a route is dropped.
If the route cannot be known (several next hops chosen by a hash of the flow; a rule on a mark,
without --mark; an address that several interfaces lead to), all routes are followed: if all
end alike, that is the answer; if not, each is shown with its own verdict.

--log takes the number of a packet of "sluice log" and fills in all that is known of it: it
shows the line that the packet matched then, and what the policy does with such a packet now.
Its addresses are those that the line saw, after translation.

The cost of the rules is for what the packet passes, without connection tracking.` + costsHelp + `
` + liveHelp + `

Exit status: 0 allowed; 1 dropped or rejected (also by a ban), or undecided, or the loaded
firewall does otherwise; 2 bad use, a bad policy, or a bug in Sluice.
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
	flags.StringVar(&described, "host", "", "explain for the host described in `FACTS.json`")
	addLabels(cmd)
	flags.Uint64Var(&number, "log", 0, "explain the packet with this `NUMBER` in sluice log")
	for _, said := range []string{"proto", "src", "dst", "sport", "dport", "in", "out", "icmp-type", "flags", "user", "hook"} {
		cmd.MarkFlagsMutuallyExclusive("log", said)
	}
	addExplainLive(cmd)
	return cmd
}

func runExplain(cmd *cobra.Command, args []string, asked explain.Question, described string, number uint64, everyRule bool) error {
	live := given(cmd, "live")
	if live && described != "" {
		return errors.New("--live is about this host, --host about another\nhint: give one of them")
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
		return h.Explain(ctx, engine.Explaining{Subject: s, Question: asked, Elsewhere: described != "", Live: live})
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
		err = fmt.Errorf("packet %d is not in the log\nhint: sluice log lists packets with their numbers", number)
	}
	return out, err
}

// printThen says what was logged of a packet.
func printThen(w io.Writer, l *engine.Logged) {
	met := "a line that is no longer known"
	if l.Line > 0 {
		met = fmt.Sprintf("%s:%d of generation %d", command.PlainName(l.File), l.Line, l.Generation)
	}
	fmt.Fprintf(w, "packet %d matched %s on %s\n", l.Number, command.Paint(w, "1", met), l.Time.Local().Format(time.DateTime))
	if l.Rule != "" {
		fmt.Fprintf(w, "    %s\n", command.PlainName(l.Rule))
	}
	fmt.Fprintln(w, "\nnow:")
}
