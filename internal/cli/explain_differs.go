package cli

import (
	"context"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/base/packet"
	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
	"sluice/internal/engine/trace"
	"sluice/internal/language/policy"
	"sluice/internal/prove/reference"
)

// Endings of the comments of rules that ask for what is banned while the firewall runs.
const (
	ofCommand = " ban.command"
	ofLimit   = " limit.banned"
)

// askedBan says whether the loaded firewall decided by a ban of a kind: the rule that
// drops asks it itself, or was led to by one that does.
func (v *liveView) askedBan(ending string) bool {
	if d := v.Decider(); d == nil || d.Foreign || d.Verdict != "drop" {
		return false
	}
	for i := v.Decided; i >= 0; i-- {
		s := v.Steps[i]
		if strings.HasSuffix(s.Comment, ending) {
			return true
		}
		if led := i > 0 && (v.Steps[i-1].Verdict == "jump "+s.Chain || v.Steps[i-1].Verdict == "goto "+s.Chain); !led {
			return false
		}
	}
	return false
}

// whyDifferent says why the loaded firewall may do otherwise than the policy, and what
// one can do about it.
func (e *explained) whyDifferent(ctx context.Context, cmd *cobra.Command, v *liveView) (because, hint string) {
	decider := v.Decider()
	switch {
	case decider != nil && decider.Foreign:
		return "Sluice touches no other tool's rules, and what they close, a policy cannot open.", listing(*decider) + " shows it"
	case v.Verdict == trace.Lost:
		return "", ""
	case !v.Loaded:
		return "No policy of Sluice's is loaded here.", "sluice apply " + e.fileWord() + command.HereArguments(cmd) + " loads it"
	case v.askedBan(ofCommand):
		return "An address of it is banned by command, which is no part of the policy.", "sluice bans" + command.HereArguments(cmd) + " shows such bans, sluice unban lifts one"
	case v.askedBan(ofLimit):
		return "An address of it is banned for a time, since it went over a limit of the policy.", "sluice bans" + command.HereArguments(cmd) + " shows such bans, sluice unban lifts one"
	}
	if because, hint := e.otherThan(ctx, cmd, v); because != "" {
		return because, hint
	}
	if said := e.path.Packet.State; v.State != "" && said != "" && v.State != said {
		return fmt.Sprintf("The policy's answer is about a packet that is %s, and here connection tracking says that it is %s.", said, v.State), ""
	}
	if rule := e.usedUp(v); rule != nil {
		return fmt.Sprintf("The policy's answer holds as long as %s of %s:%d %s not used up, and now %s.", limitWords(rule, "the rate", "the connections"),
			filepath.Base(rule.Pos.File), rule.Pos.Line, limitWords(rule, "is", "are"), limitWords(rule, "it is", "they are")), ""
	}
	return "What is loaded is what this policy says, as far as it can be told: this may be a bug in Sluice.",
		"sluice verify" + command.HereArguments(cmd) + " compares all of it; please report what it finds, with the policy"
}

// otherThan says whether what is loaded was changed by hand, or made from another text
// or for another host.
func (e *explained) otherThan(ctx context.Context, cmd *cobra.Command, v *liveView) (because, hint string) {
	h, err := hostOf(cmd)
	if err != nil {
		return "", ""
	}
	h.Note, h.Progress = nil, nil
	s, err := h.Status(ctx, true)
	if err != nil {
		return fmt.Sprintf("What is loaded could not be compared with what was meant: %v.", err), ""
	}
	here := command.HereArguments(cmd)
	switch {
	case s.Condition == apply.Foreign || s.Generation == nil:
		return "The loaded rules are Sluice's, but this state does not know them.", "apply the policy, or name the state that they are of with --state-dir"
	case len(s.Drift) > 0:
		first := apply.DescribeDifference(s.Drift[0])
		if n := len(s.Drift); n > 1 {
			first += fmt.Sprintf(", and %s more", plural(n-1, "difference"))
		}
		return "The loaded rules were changed since Sluice loaded them: " + first + ".", "sluice status" + here + " shows it, sluice restore" + here + " puts it back"
	case s.Generation.Closed:
		return "The confirmed policy could not be restored: what is loaded lets only ssh in.", "sluice apply " + e.fileWord() + here
	case !e.sameText(s.Generation):
		return fmt.Sprintf("What is loaded is another text: generation %d of %s, of %s.", s.Generation.Number, s.Generation.Policy, s.Generation.Created.Local().Format("2006-01-02 15:04:05")),
			"sluice plan " + e.fileWord() + here + " shows what an apply would change"
	case len(s.Host.Moved) > 0:
		return fmt.Sprintf("The host is another than the rules were loaded for: %s since generation %d.", s.Host.Moved[0], s.Generation.Number), "sluice sync" + here + " brings it in"
	case len(s.Host.Fixed) > 0:
		return fmt.Sprintf("The host is another than the rules were loaded for: %s since generation %d.", s.Host.Fixed[0], s.Generation.Number), "apply the policy again"
	case s.Grace > 0 && v.Verdict == trace.Allow && e.packet.Protocol == packet.TCP:
		return "TCP of connections that nobody knows passes for a moment still, so that those from before the first load go on.", "sluice status" + here + " says how long"
	}
	return "", ""
}

// usedUp is the rule of the policy whose limit is used up, where that leads to what the
// loaded firewall does.
func (e *explained) usedUp(v *liveView) *policy.Rule {
	r, p := *e.resolved, *e.resolved.Policy
	r.Policy = &p
	path := e.path
	for range limitsAsked {
		rule := path.Rule
		switch {
		case rule == nil || rule.Limit == nil && rule.Max == nil:
			return nil
		case rule.Limit != nil && rule.Limit.ThenBan > 0:
			path = reference.Path{Verdict: policy.Drop}
		default:
			for _, s := range []**policy.Section{&p.Input, &p.Forward, &p.Output} {
				if *s != nil && slices.Contains((*s).Rules, rule) {
					without := **s
					without.Rules = slices.DeleteFunc(slices.Clone(without.Rules), func(r *policy.Rule) bool { return r == rule })
					*s = &without
				}
			}
			path = reference.Ways(&r, e.packet, e.way, e.facts.Route)[0]
		}
		if string(path.Verdict) == string(v.Verdict) {
			return rule
		}
	}
	return nil
}

// limitsAsked is how many limits in a row usedUp takes for used up.
const limitsAsked = 8

func limitWords(r *policy.Rule, rate, connections string) string {
	if r.Limit != nil {
		return rate
	}
	return connections
}

// fileWord is the policy's file for a command line that a hint names.
func (e *explained) fileWord() string {
	if e.policy.File == stdinName {
		return "FILE"
	}
	return command.ShellWord(e.policy.File)
}

// sameText says whether a generation was made from the files that were read now.
func (e *explained) sameText(g *apply.Generation) bool {
	texts, sets := sourceFiles(e.policy)
	var now []apply.Source
	if texts[0] == stdinName { // it has been read, and has another name there
		sum := e.policy.Sums()[stdinName]
		now, texts = append(now, apply.Source{Name: stdinName, SHA256: hex.EncodeToString(sum[:])}), texts[1:]
	}
	files, err := apply.ReadSources(texts, sets)
	now = append(now, files...)
	if err != nil || len(now) != len(g.Files) {
		return false
	}
	for _, s := range now {
		same := func(f apply.File) bool {
			return (filepath.Base(f.Name) == filepath.Base(s.Name) || s.Name == stdinName) && f.SHA256 == s.SHA256
		}
		if !slices.ContainsFunc(g.Files, same) {
			return false
		}
	}
	return true
}

// listing is the command that shows the chain of a step.
func listing(s trace.Step) string {
	if s.Legacy {
		return fmt.Sprintf("%s-legacy -t %s -S %s", legacyProgram(s.Family), s.Table, s.Chain)
	}
	return fmt.Sprintf("nft -a list chain %s %s %s", s.Family, command.ShellWord(s.Table), command.ShellWord(s.Chain))
}

func legacyProgram(family string) string {
	if family == "ip6" {
		return "ip6tables"
	}
	return "iptables"
}
