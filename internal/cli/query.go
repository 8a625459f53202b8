package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/program"
	"sluice/internal/prove/query"
)

// queryFlags are what the words of a question are called here.
var queryFlags = map[string]string{"service": "--service", "from": "--from", "to": "--to", "in": "--in", "out": "--out", "hook": "--hook"}

func newQuery() *cobra.Command {
	w := query.Words{Called: queryFlags}
	var allowed, dropped bool
	var states, described string
	cmd := &cobra.Command{
		Use:   "query [FILE]",
		Short: "Say which packets a policy allows, all of them",
		Long: `Says of all packets that fit what a policy (that which runs unless FILE is
given, standard input for -) does with them: as few classes as there are, each
exact, each with the line that decides and one packet as an example, or "none".
Nothing is tried out and no packet is sent. It holds for every packet, since the
compiled rules are followed for all values of all fields at once; each example is
then asked of a second judge, which reads the policy and not what it was compiled
to.

The packets asked about are those that begin something, of every service, by
every section that the policy has, and by input and forward where the policy
has no section for them and so lets all through (forward where the host
forwards, or --to names other hosts); what the host says to itself over loopback
is left out. They are meant as they arrive. Those that nat leads to the service
or address that was asked for are shown too, as "redirected to"; so are ports
that another tool publishes, as far as the host's facts know where they lead.
The words are those of rules: --service ssh, tcp/22, "icmp
echo-request" or "[http, https]"; --from and --to a set, a zone, an address, "not
office" or a list; --in and --out a zone. --allowed and --dropped show one side
alone; what is rejected counts as dropped.

Limits let packets through unless a class says that it is over one. Addresses
that commands or limits have banned meanwhile are not of the policy, and are
left out.

Exit status: 0 fine, and with --allowed or --dropped: there are none; 1 there are
some; 2 bad use or a bad policy. So a check in CI that nobody else gets to ssh is
"sluice query --allowed --service ssh --from 'not office'".
Environment: SLUICE_STATE_DIR.
Files: /etc/sluice/policy.yaml, country data and lists in /var/lib/sluice.`,
		Example: `  sluice query policy.yaml --allowed --service ssh
  sluice query policy.yaml --allowed --service ssh --from "not office"
  sluice query policy.yaml --dropped --hook output --service [smtp, tcp/587]
  sluice query policy.yaml --from 203.0.113.7 --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// A shell variable that is not set must not ask about everybody.
			for _, name := range []string{"service", "from", "to", "in", "out", "hook"} {
				if f := cmd.Flags().Lookup(name); f.Changed && strings.TrimSpace(f.Value.String()) == "" {
					return fmt.Errorf("--%s is empty\nhint: leave it out where anything is meant", name)
				}
			}
			var err error
			if w.States, err = query.States(states); err != nil {
				return fmt.Errorf("--state: %w", err)
			}
			switch w.Hook {
			case "", "input", "forward", "output":
			default:
				return fmt.Errorf("--hook %q: unknown hook\nhint: there are input, forward and output", w.Hook)
			}
			return runQuery(cmd, args, w, verdictsAsked(allowed, dropped), described)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&allowed, "allowed", false, "show what is allowed")
	flags.BoolVar(&dropped, "dropped", false, "show what is dropped or rejected")
	flags.StringVar(&w.Service, "service", "", "only packets of `SERVICE`")
	flags.StringVar(&w.From, "from", "", "only packets from `WHO`")
	flags.StringVar(&w.To, "to", "", "only packets to `WHO`")
	flags.StringVar(&w.In, "in", "", "only packets that come in by `ZONE`")
	flags.StringVar(&w.Out, "out", "", "only packets that go out by `ZONE`")
	flags.StringVar(&w.Hook, "hook", "", "only packets of `HOOK`: input, forward or output")
	flags.StringVar(&states, "state", "new", "`STATE` that connection tracking gives them: new, established, related, invalid, untracked, any")
	flags.StringVar(&described, "host", "", "ask for the host described in `FACTS.json`")
	addLabels(cmd)
	cmd.MarkFlagsMutuallyExclusive("allowed", "dropped")
	command.Must(cmd.RegisterFlagCompletionFunc("hook", command.Words("input", "forward", "output")))
	command.Must(cmd.RegisterFlagCompletionFunc("state", command.Words("new", "established", "related", "invalid", "untracked", "any")))
	return cmd
}

func verdictsAsked(allowed, dropped bool) []program.Verdict {
	switch {
	case allowed:
		return []program.Verdict{program.Accept}
	case dropped:
		return []program.Verdict{program.Drop, program.Reject}
	}
	return nil
}

func runQuery(cmd *cobra.Command, args []string, w query.Words, verdicts []program.Verdict, described string) error {
	h, err := doorOf(cmd)
	if err != nil {
		return err
	}
	out, err := aboutPolicy(cmd, args, described, true, func(s *engine.Subject) (*engine.Queried, error) {
		return h.Query(cmd.Context(), engine.Querying{Subject: s, Words: w, Verdicts: verdicts})
	})
	if err != nil {
		return err
	}
	if optionsOf(cmd).json {
		err = command.PrintJSON(cmd.OutOrStdout(), out)
	} else {
		for _, text := range out.Notes {
			fmt.Fprintln(cmd.ErrOrStderr(), "note: "+text)
		}
		err = printAnswers(cmd.OutOrStdout(), w, verdicts, out.Classes)
	}
	if err == nil && len(verdicts) > 0 && len(out.Classes) > 0 {
		err = command.ErrFound
	}
	return err
}

// verdictColours by the words of verdicts.
var verdictColours = map[string]string{"allowed": "32", "dropped": "31", "rejected": "31"}

func printAnswers(w io.Writer, asked query.Words, verdicts []program.Verdict, answers []query.Answer) error {
	if len(answers) == 0 {
		what := "there is none"
		switch {
		case len(verdicts) == 1:
			what = "none is allowed"
		case len(verdicts) > 1:
			what = "none is dropped"
		}
		_, err := fmt.Fprintf(w, "of all %s %s\n", asked, command.Paint(w, "1", what))
		return err
	}
	rest, collapsed := map[query.Decider]int{}, map[query.Decider]bool{}
	for i := range answers {
		a := &answers[i]
		if len(verdicts) == 0 && strings.HasPrefix(a.By.Text, "default: ") {
			rest[a.By]++
		}
	}
	for i := range answers {
		a := &answers[i]
		if n := rest[a.By]; n > shownDefaults {
			continue
		}
		fmt.Fprintf(w, "%s on %s %s %s %s, %s\n", command.Paint(w, "1", a.Service()), a.Hook, choice(a.Many(), "are", "is"),
			command.Paint(w, verdictColours[a.Verdict], a.Verdict), a.Place(), deciders(a))
	}
	for i := range answers {
		a := &answers[i]
		if n := rest[a.By]; n > shownDefaults {
			fmt.Fprintf(w, "%s on %s is %s, by %s %s\n", command.Paint(w, "1", "everything else"), a.Hook,
				command.Paint(w, verdictColours[a.Verdict], a.Verdict), a.By, command.Paint(w, "2", fmt.Sprintf("(%d classes, --dropped or --allowed shows them)", n)))
			collapsed[a.By] = true
			delete(rest, a.By)
		}
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "for example\tverdict\tline\n")
	for i := range answers {
		a := &answers[i]
		if collapsed[a.By] {
			continue
		}
		row := fmt.Sprintf("%s\t%s\t%s", a.Example, a.Verdict, a.By)
		if a.By.Line != 0 {
			row += "\t" + a.By.Text
		}
		fmt.Fprintln(t, row)
	}
	return t.Flush()
}

// deciders names the line, and those that decide on some of the packets instead.
func deciders(a *query.Answer) string {
	text := a.By.Phrase()
	if len(a.Also) == 0 {
		return text
	}
	var lines, others []string
	always := false
	for _, d := range a.Also {
		switch {
		case d.Line == 0:
			always = true
		case d.File == a.By.File:
			lines = append(lines, strconv.Itoa(d.Line))
		default:
			others = append(others, d.String())
		}
	}
	if len(lines) > 0 {
		word := "line "
		if len(lines) > 1 {
			word = "lines "
		}
		others = append([]string{word + strings.Join(lines, ", ")}, others...)
	}
	if always {
		others = append(others, "what always holds")
	}
	return text + ", some by " + strings.Join(others, " and ")
}

// shownDefaults is up to how many classes of a default are told apart where
// nobody asked for them.
const shownDefaults = 2
