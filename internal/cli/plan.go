package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/backend"
	"sluice/internal/base/english"
	"sluice/internal/cli/answers"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
)

func newPlan() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan [FILE]",
		Short: "Show what applying a policy would change",
		Long: `Compiles a policy and compares it with what runs: rules as a diff of the policy's lines (--all
adds rules that hold without being written), sets by elements added and removed (--all adds
those that Sluice makes), sysctls, the transactions, how much is sent to the kernel, the time of
the whole apply and its parts on an idle machine, kernel memory (now, while old and new coexist,
and then; sets that stay count once), and the connections that the policy's bans end.

It lists what this kernel lacks, chains of other tools that may drop what the policy allows,
ports that stay open because the policy has no forward section, and expectations of the policy
that would fail. It shows the expected cost of the rules for a packet, for the mix that "compile
--explain" describes. If newer measurements give a large set another layout, it says so: apply
then loads the policy again, with the same meaning. Nothing changes.
` + costsHelp + `
` + profileHelp + passesHelp + policyHelp + `

Exit status: 0 nothing would change, 1 something would, or apply would refuse it, 2 bad use or
bad input.`,
		Example: "  sluice plan /etc/sluice/policy.yaml\n  sluice plan policy.yaml --json | jq .cost",
		Args:    policyAndProfile,
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, args []string) error {
			r, err := request(cmd, args)
			if err != nil {
				return err
			}
			plan, err := h.Plan(ctx, r)
			if err != nil {
				return err
			}
			return answer(cmd, plan, !plan.Unchanged || plan.Refused != "", func(w io.Writer) { printPlan(w, plan, given(cmd, "all")) })
		}),
	}
	cmd.Flags().Bool("all", false, "also show rules and sets that hold without being written")
	addProfile(cmd)
	addPasses(cmd)
	addWait(cmd)
	return cmd
}

// printPrice says what packets pay, in two lines of a plan.
func printPrice(w io.Writer, p *engine.Price) {
	if p == nil {
		return
	}
	fmt.Fprintf(w, "packet       about %.0f ns for the rules, in the mean, %s\n", p.NS, answers.CostWords(p.CostsView))
	var each []string
	for _, c := range p.Classes {
		each = append(each, fmt.Sprintf("%s %.0f ns", c.Class, c.NS))
	}
	fmt.Fprintf(w, "packet       %s\n", strings.Join(each, "; "))
}

// mostMeaning is how many lines say what a plan opens and closes.
const mostMeaning = 10

func printPlan(w io.Writer, p *engine.Plan, all bool) {
	rules := p.Rules
	switch {
	case all:
		rules = p.AllRules
	case rules == "" && p.AllRules != "":
		fmt.Fprintln(w, "the policy's own rules stay; --all shows changes of those that hold without being written")
	}
	if p.Unchanged {
		fmt.Fprintf(w, "nothing to change: %s runs\n", policyText(p.From, p.Policy))
	}
	if p.Gone != 0 {
		fmt.Fprintf(w, "nothing runs: somebody removed the rules of %s\n", generationName(p.Gone))
	}
	for i, l := range p.Meaning {
		if i == mostMeaning && !all {
			fmt.Fprintf(w, "meaning      and %s more: sluice diff shows all\n", english.Plural(len(p.Meaning)-i, "line"))
			break
		}
		fmt.Fprintf(w, "meaning      %s\n", command.Paint(w, changeStyles[l.Kind], l.String()))
	}
	for line := range strings.Lines(rules) {
		line = strings.TrimSuffix(line, "\n")
		style := ""
		switch {
		case strings.HasPrefix(line, "+"):
			style = "32"
		case strings.HasPrefix(line, "-"):
			style = "31"
		case strings.HasPrefix(line, "@"):
			style = "2"
		}
		if style != "" {
			line = command.Paint(w, style, line)
		}
		fmt.Fprintln(w, line)
	}
	for _, s := range p.Sets {
		if s.Internal && !all {
			continue
		}
		fmt.Fprintf(w, "set          %s: from %s to %s %s, +%s -%s%s\n", s.Name, english.Grouped(s.Before), english.Grouped(s.After), english.Noun(s.After, "element"), english.Grouped(s.Added), english.Grouped(s.Removed), addressChange(s))
	}
	for _, c := range p.Choices {
		fmt.Fprintf(w, "layout       %s: %s, instead of %s\n", c.For, c.New, c.Old)
	}
	for _, c := range p.Sysctls {
		fmt.Fprintf(w, "sysctl       %s: %s to %s\n", c.Name, orNone(c.Old), c.New)
	}
	for _, s := range p.Steps {
		fmt.Fprintf(w, "step         %s\n", s)
	}
	fmt.Fprintf(w, "takes        %s\n", sizeText(p.Cost))
	fmt.Fprintf(w, "memory       %s\n", memoryText(p))
	if !p.Unchanged {
		fmt.Fprintf(w, "sends        %s\n", sizeText(p.Added))
		fmt.Fprintf(w, "apply time   about %s\n", timesText(p.Times))
	}
	if p.Grace > 0 {
		fmt.Fprintf(w, "grace        connections through this host have %s to send a packet; unknown connections are then refused\n", time.Duration(p.Grace*float64(time.Second)))
	}
	printPrice(w, p.Packets)
	printEnds(w, p.Ends)
	printSaid(w, p)
}

// printSaid is what to know of a policy before it is applied, and why it would not be.
func printSaid(w io.Writer, p *engine.Plan) {
	for _, n := range p.Notes {
		fmt.Fprintf(w, "%s         %s\n", command.Paint(w, "33", "note"), n)
	}
	for _, n := range p.Warnings {
		fmt.Fprintf(w, "%s      %s\n", command.Paint(w, "33", "warning"), n)
	}
	if p.Refused != "" {
		fmt.Fprintf(w, "%s      %s\n", command.Paint(w, "31", "refused"), p.Refused)
	}
}

// timesText is the time of an apply with its parts.
func timesText(t *apply.Times) string {
	text := func(seconds float64) string {
		return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond).String()
	}
	return fmt.Sprintf("%s: compile %s, read %s, fill %s, switch %s, check %s, rest %s",
		text(t.Total), text(t.Compile), text(t.Read), text(t.Fill), text(t.Switch), text(t.Check), text(t.Rest))
}

func sizeText(c backend.Cost) string {
	count := func(n int, word string) string {
		if n == 1 {
			return "1 " + word
		}
		return english.Grouped(n) + " " + word + "s"
	}
	text := count(c.Rules, "rule")
	for _, o := range c.Objects {
		text += ", " + count(o.Number, strings.TrimSuffix(o.Kind, "s"))
	}
	return text + ", " + count(c.Elements, "element")
}

// printEnds names the flows that the bans of the policy end.
func printEnds(w io.Writer, e *apply.EndedFlows) {
	if e == nil {
		return
	}
	for _, f := range e.First {
		fmt.Fprintf(w, "%s         %s %s to %s, by %s\n", command.Paint(w, "33", "ends"), f.Protocol, f.From, f.To, f.By)
	}
	if more := e.Count - len(e.First); more > 0 {
		fmt.Fprintf(w, "%s         and %s more of banned addresses\n", command.Paint(w, "33", "ends"), english.Plural(more, "flow"))
	}
}

func addressChange(s apply.SetChange) string {
	if s.AddressesPlus == 0 && s.AddressesMinus == 0 {
		return ""
	}
	return fmt.Sprintf(" (+%s -%s IPv4 addresses)", english.Grouped(s.AddressesPlus), english.Grouped(s.AddressesMinus))
}

func memoryText(p *engine.Plan) string {
	text := apply.Bytes(p.Cost.Memory)
	if !p.Unchanged && p.Before.Memory > 0 {
		text = fmt.Sprintf("%s now, %s while old and new coexist, %s then",
			apply.Bytes(p.Before.Memory), apply.Bytes(p.Before.Memory+p.Added.Memory), text)
	}
	if p.Cost.Growth > 0 {
		text += fmt.Sprintf(", may grow to %s as limits see sources", apply.Bytes(p.Cost.Memory+p.Cost.Growth))
	}
	if p.Available > 0 {
		text += fmt.Sprintf(", of %s free", apply.Bytes(p.Available))
	}
	return text
}
