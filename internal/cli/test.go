package cli

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/prove/expect"
	"sluice/internal/words"
)

func newTest() *cobra.Command {
	var described string
	var files []string
	var offline bool
	cmd := &cobra.Command{
		Use:   "test [FILE]",
		Short: "Prove the expectations of a policy",
		Long: `Proves the expectations of a policy (the running one unless you give FILE, standard input for -):
the lines under expect, such as

  expect:
    - allow tcp/443 from 2.32.0.1
    - deny ssh from not office

Each says what happens to every packet that fits it. Nothing is sampled: an expectation holds for
all packets, or the command shows which packets break it, with an example and the line of the
policy that decides. Nothing is sent and nothing changes.

They are about packets that begin a flow, as they arrive, with limits not reached; "The policy
language" lists the words. --expect also reads expectations from a file (version: 1, and a list
under expect), which may use the names of the policy. This host's own expectations for every
policy, in /etc/sluice/guard.yaml, are proved too. "sluice apply" proves all of these before it
loads anything.

Exit status: 0 all hold, or there are none; 1 one does not; 2 bad use, a bad policy, or an
expectation that no packet can match.
Environment: SLUICE_STATE_DIR.
Files: /etc/sluice/policy.yaml, /etc/sluice/guard.yaml, country data and lists in /var/lib/sluice.`,
		Example: `  sluice test
  sluice test policy.yaml --expect tests/ssh.yaml --expect tests/web.yaml
  sluice test policy.yaml --host gateway.json --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runTest(cmd, args, files, described, offline)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&files, "expect", nil, "also read expectations from `FILE`; may be repeated")
	flags.StringVar(&described, "host", "", "test for the host described in `FACTS.json`")
	addLabels(cmd)
	flags.BoolVar(&offline, "offline", false, "use the copies of lists, download none")
	command.Must(cmd.MarkFlagFilename("expect", "yaml", "yml"))
	command.Must(cmd.MarkFlagFilename("host", "json"))
	return cmd
}

func runTest(cmd *cobra.Command, args, files []string, described string, offline bool) error {
	for i, name := range files { // those of what runs may be from another folder
		if full, err := filepath.Abs(name); err == nil && len(args) == 0 {
			files[i] = full
		}
	}
	s, err := subject(cmd, sourcesOf(cmd, offline), args, described)
	if err != nil {
		return err
	}
	for _, name := range files {
		if err := s.Policy.ReadExpectations(name); err != nil {
			return err
		}
	}
	if described == "" {
		if s.Guard, err = engine.ReadGuard(engine.GuardFile(optionsOf(cmd).netns)); err != nil {
			return err
		}
	}
	if len(s.Policy.Expect) == 0 && s.Guard == nil {
		return reportTests(cmd, s.Policy.File, nil)
	}
	if s.Facts, err = readFacts(cmd.Context(), described, optionsOf(cmd)); err != nil {
		return err
	}
	results, err := s.Test(cmd.Context())
	if err != nil {
		return err
	}
	err = reportTests(cmd, s.Policy.File, results)
	if described != "" {
		return err
	}
	return moved(cmd, err)
}

// moved says that the rules that run hold for another host than this is by now, which
// what was tested is for.
func moved(cmd *cobra.Command, tested error) error {
	h, err := hostOf(cmd)
	if err != nil {
		return err
	}
	generation, now, err := h.Standing(cmd.Context())
	if err != nil || len(now.Moved)+len(now.Fixed) == 0 {
		return cmp.Or(tested, err)
	}
	if !optionsOf(cmd).json {
		for _, m := range now.Moved {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s since generation %d, and the rules in the kernel are older\nhint: sluice sync%s updates them\n", m, generation, command.HereArguments(cmd))
		}
		for _, text := range now.Fixed {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s since generation %d, and the rules in the kernel depend on it\nhint: apply the policy again\n", text, generation)
		}
	}
	return cmp.Or(tested, error(command.ErrFound))
}

// unjudgedHints are the ways out where nothing could be judged.
var unjudgedHints = map[expect.Unjudged]string{
	expect.UnknownHost:  "--host FACTS.json describes the host; sluice facts --json writes it there",
	expect.NotPublished: "if another tool publishes the port, test while it does, or with --host FACTS.json that sluice facts --json wrote then; without published, the expectation is about packets to the host itself",
}

func reportTests(cmd *cobra.Command, file string, results []expect.Result) error {
	for i := range results {
		if hint, known := unjudgedHints[results[i].Unjudged]; known {
			results[i].Note += "\nhint: " + hint
		}
	}
	out := expect.ReportOf(file, results)
	failing, unjudged := 0, 0
	for i := range results {
		if !results[i].Holds() {
			failing++
		}
		if results[i].Note != "" {
			unjudged++
		}
	}
	w := cmd.OutOrStdout()
	if optionsOf(cmd).json {
		if err := command.PrintJSON(w, out); err != nil {
			return err
		}
	} else {
		for i := range results {
			printResult(w, &results[i])
		}
	}
	switch {
	case len(results) == 0:
		if !optionsOf(cmd).json {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s has no expectations\nhint: list under expect what must hold, such as - deny ssh from not office\n", fileName(file))
		}
	case failing > 0 && optionsOf(cmd).json:
		return command.ErrFound
	case failing > 0:
		return command.Found(fmt.Sprintf("%d of %s in %s %s", failing, english.Plural(len(results), "expectation"), fileName(file), choice(failing == 1, "fails", "fail")))
	case optionsOf(cmd).json:
	case unjudged > 0:
		fmt.Fprintf(cmd.ErrOrStderr(), "none of %s in %s fails, and %d could not be judged\n", english.Plural(len(results), "expectation"), fileName(file), unjudged)
	default:
		fmt.Fprintf(cmd.ErrOrStderr(), "%s in %s\n", oneHolds(len(results)), fileName(file))
	}
	return nil
}

func oneHolds(n int) string {
	if n == 1 {
		return "the expectation holds"
	}
	return fmt.Sprintf("all %d expectations hold", n)
}

func printResult(w io.Writer, r *expect.Result) {
	x := r.Expectation
	switch {
	case r.Note != "":
		fmt.Fprintf(w, "%s    %s: %s\n        %s\n", command.Paint(w, "33", "note"), x.Pos, x.Text, strings.ReplaceAll(r.Note, "\n", "\n        "))
		return
	case r.Holds():
		fmt.Fprintf(w, "%s      %s: %s\n", command.Paint(w, "32", "ok"), x.Pos, x.Text)
		return
	}
	fmt.Fprintf(w, "%s  %s: %s\n", command.Paint(w, "31", "FAILED"), x.Pos, command.Paint(w, "1", x.Text))
	fmt.Fprintln(w, words.Failures(r.Failures, "        "))
}
