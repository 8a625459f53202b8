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
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/engine/verify"
	"sluice/internal/system/host"
)

func newVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Prove that the kernel does what the policy says, for every packet",
		Long: `Reads the rules and all sets back from the kernel, makes a program of them, and proves that it
treats every packet as the policy says: verdict, rewriting, tracking, counters, logs and limits.
If it does not, it shows the packets, with an example and what decides on both sides. Without
FILE the policy is the running generation as it was applied; with FILE it is that file, with lists
and countries as they are now.

Nothing is tried out: the rules of both sides are evaluated for all values of all fields at once.
So a redundant rule is no difference (sluice status reports it), and a rule that opens a single
port for one address is. If the meaning of a rule or statement is unknown, it is listed, and
nothing is proved. What commands and limits ban at the moment is not counted as a difference;
that bans by command are in force is proved too.

Packets that do not occur are left out: ICMP within IPv6, ICMPv6 within IPv4, and packets of
established flows from or to addresses that the policy bans, since apply deletes these flows.

Base chains of other tools that can drop what the policy allows, rewrite it, or accept what it
refuses are listed; nothing is proved about them. They make the exit status 1, unless you give
--own. Chains that only set expectations, helpers or timeouts of connection tracking are listed
without that.

Other hooks are listed as well: programs and filters at XDP, tc and tcx, which may redirect packets
past every rule, and IPVS services, which bypass forward, both with exit status 1; programs at
netfilter hooks, which may drop, and functions of modules there. If the kernel does not show the
network namespace of a program at a netfilter hook, that is noted without changing the status.

"sluice apply" does the same after each load.
` + policyHelp + `

Exit status: 0 proved; 1 a difference, something not proved, or the closed policy of a failed
restore; 2 bad use, or it could not be read.`,
		Example: `  sluice verify
  sluice verify /etc/sluice/policy.yaml
  sluice verify --own --json --netns customer7`,
		Args: cobra.MaximumNArgs(1),
		RunE: onHost(runVerify),
	}
	cmd.Flags().Bool("own", false, "ignore chains of other tools")
	addWait(cmd)
	return cmd
}

func runVerify(ctx context.Context, cmd *cobra.Command, h door, args []string) error {
	var against *engine.Subject
	if len(args) > 0 {
		p, err := engine.Load(cmd.InOrStdin(), args[0])
		if err != nil {
			return err
		}
		against = &engine.Subject{Policy: p, Sources: sourcesOf(cmd, false)}
	}
	v, err := h.Verify(ctx, against, given(cmd, "own"))
	if err != nil {
		return err
	}
	return answer(cmd, v, !v.Holds(), func(w io.Writer) { printVerified(w, v, command.HereArguments(cmd)) })
}

func printVerified(w io.Writer, v *engine.Verified, here string) {
	name := v.Policy
	if name == "" {
		name = "the policy"
	}
	if v.Closed {
		fmt.Fprintf(w, "%s       the confirmed policy could not be restored, so the closed policy runs (generation %d): only ssh is allowed\n", command.Paint(w, "31", "closed"), v.Generation)
		fmt.Fprintf(w, "hint         apply a policy, or sluice rollback%s to a generation of sluice history%s\n", here, here)
	}
	switch {
	case v.Proved:
		fmt.Fprintf(w, "%s every packet gets what %s says %s\n", command.Paint(w, "32", "proved:"), name, provedText(v.Proof))
	case v.Nothing:
		printNothingLoaded(w, v.Verified, name, here)
	default:
		fmt.Fprintf(w, "%s %s %s\n", command.Paint(w, "31", "not proved:"), notProvedText(v.Verified, name), provedText(v.Proof))
	}
	for _, d := range v.Differences {
		if !v.Nothing { // else there is one reason for all
			printDisproof(w, d)
		}
	}
	for _, u := range v.Unread {
		printUnread(w, u)
	}
	for _, text := range v.Opaque {
		fmt.Fprintf(w, "%s      undecidable: %s\n", command.Paint(w, "33", "opaque"), text)
	}
	for i, e := range v.Strange {
		if i == mostStrange {
			fmt.Fprintf(w, "             and %s more (--json names them)\n", english.Plural(len(v.Strange)-i, "element"))
			break
		}
		fmt.Fprintf(w, "%s     set %s holds %s; its rules make: %s\n", command.Paint(w, "31", "element"), e.Set, e.Kernel, e.Expected)
	}
	printStanding(w, v.Host, v.Generation, here)
	for _, d := range v.Bans {
		fmt.Fprintf(w, "%s         %s\n", command.Paint(w, "31", "ban"), apply.DescribeDifference(d))
	}
	for _, d := range v.Exceptions {
		fmt.Fprintf(w, "%s    %s: sluice sync%s fixes it\n", command.Paint(w, "31", "exception"), d, here)
	}
	for _, d := range v.Longer {
		fmt.Fprintf(w, "%s       %s\n", command.Paint(w, "31", "grace"), apply.DescribeDifference(d))
	}
	if v.Grace > 0 && len(v.Longer) == 0 {
		fmt.Fprintf(w, "grace        %s: the proof is for after that time\n", graceText(v.Grace))
	}
	if v.Banned > 0 {
		fmt.Fprintf(w, "banned       %s by command now, which is not counted as a difference\n", choice(v.Banned == 1, "1 address or range", fmt.Sprint(v.Banned, " addresses or ranges")))
	}
	if v.Proved && v.Form > 0 {
		fmt.Fprintf(w, "note         the kernel differs from what was loaded in %s that change nothing: sluice status%s names them\n", english.Plural(v.Form, "place"), here)
	}
	for _, u := range v.Unasked {
		fmt.Fprintf(w, "note         set %s contains what no command banned: %s; no rule looks it up, and the next ban removes it\n", u.Set, unaskedText(u))
	}
	for _, c := range v.Unproved {
		fmt.Fprintf(w, "%s     chain %s of table %s %s (%s, at %s, priority %d) is not ours and %s\n",
			command.Paint(w, "33", "unproved"), c.Name, c.Family, c.Table, madeBy(c.ForeignChain), c.Hook, c.Priority, c.Text())
	}
	for _, b := range v.Attached {
		fmt.Fprintf(w, "%s     %s\n", command.Paint(w, "33", "unproved"), b.Text)
	}
	for _, text := range v.Untold {
		fmt.Fprintf(w, "%s     cannot tell: %s\n", command.Paint(w, "33", "unproved"), text)
	}
}

// mostStrange is how many elements that no rule made are named.
const mostStrange = 10

// printNothingLoaded says that the kernel has nothing of Sluice, before anything
// else, and the way out.
func printNothingLoaded(w io.Writer, v *apply.Verified, name, here string) {
	why := "no policy runs"
	if v.Generation != 0 {
		why = fmt.Sprintf("generation %d should run, but somebody removed its rules", v.Generation)
	}
	fmt.Fprintf(w, "%s no rules of Sluice are loaded here; %s\n", command.Paint(w, "31", "not proved:"), why)
	switch {
	case v.Boot != 0:
		fmt.Fprintf(w, "hint         sluice restore%s loads the confirmed policy\n", here)
	case v.Generation != 0:
		fmt.Fprintln(w, "hint         apply the policy again")
	default:
		fmt.Fprintf(w, "hint         sluice apply %s%s loads it\n", command.ShellWord(name), here)
	}
	fmt.Fprintf(w, "so           %s (--json names them)\n", notProvedText(v, name))
}

// provedText says how much was looked at.
func provedText(p *apply.Proof) string {
	return fmt.Sprintf("(%s, %s, %s read, in %s)", english.Plural(p.Classes, "class"), english.Plural(p.Rules, "rule"), english.Plural(p.Elements, "element"),
		time.Duration(p.Seconds*float64(time.Second)).Round(time.Millisecond))
}

func notProvedText(v *apply.Verified, name string) string {
	var found []string
	if n := len(v.Differences); n > 0 {
		found = append(found, english.Plural(n, "kind")+" of packets that "+choice(n == 1, "does", "do")+" not get what "+name+" says")
	}
	if n := len(v.Unread); n > 0 {
		found = append(found, english.Plural(n, "thing")+" in the kernel whose meaning is not known")
	}
	if len(v.Opaque) > 0 {
		found = append(found, "conditions that cannot be decided")
	}
	if n := len(v.Strange); n > 0 {
		found = append(found, english.Plural(n, "element")+" that no rule put into "+choice(n == 1, "its set", "their sets")+" so")
	}
	if len(v.Host.Moved)+len(v.Host.Fixed) > 0 {
		found = append(found, "the host is not as the rules assume")
	}
	if len(v.Bans) > 0 {
		found = append(found, "bans by command that are not in force as they should be")
	}
	if len(v.Exceptions) > 0 {
		found = append(found, "exceptions by command that are not in force as they should be")
	}
	if len(v.Longer) > 0 {
		found = append(found, "unknown connections pass for longer than the policy says")
	}
	return strings.Join(found, "; ")
}

func unaskedText(u apply.Unasked) string {
	var texts []string
	for _, a := range u.Addresses {
		texts = append(texts, a.String())
	}
	if more := u.Count - len(texts); more > 0 {
		texts = append(texts, fmt.Sprint(more, " more"))
	}
	return strings.Join(texts, ", ")
}

func choice(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

func printDisproof(w io.Writer, d verify.Difference) {
	fmt.Fprintf(w, "\n%s       %s: %s\n", command.Paint(w, "31", "packet"), d.Way, d.Packet)
	printOutcome(w, "policy", d.Expected)
	printOutcome(w, "kernel", d.Kernel)
	fmt.Fprintf(w, "  %-10s %s\n", "all of", d.About)
}

func printOutcome(w io.Writer, who string, o verify.Outcome) {
	text := strings.TrimSpace(o.Verdict + ", " + o.By)
	if o.Verdict == "" {
		text = o.By
	}
	for _, c := range append(o.Change, o.Effects...) {
		text += "; " + c
	}
	fmt.Fprintf(w, "  %-10s %s\n", who, text)
}

func printUnread(w io.Writer, u backend.Unlifted) {
	place := "chain " + u.Chain
	if u.Rule > 0 {
		place += fmt.Sprintf(" rule %d", u.Rule)
	}
	if u.Number > 0 {
		place += fmt.Sprintf(" (handle %d)", u.Number)
	}
	fmt.Fprintf(w, "%s     %s: %s: %s\n", command.Paint(w, "33", "not read"), place, u.Text, u.Why)
}

func madeBy(c host.ForeignChain) string {
	if c.Legacy {
		return "legacy iptables"
	}
	return "nftables"
}
