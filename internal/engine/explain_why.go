package engine

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"sluice/internal/backend/trace"
	"sluice/internal/base/packet"
	"sluice/internal/engine/apply"
	"sluice/internal/language/policy"
	"sluice/internal/prove/explain"
	"sluice/internal/prove/reference"
)

// Cause is why the loaded firewall does otherwise than the policy.
type Cause string

// Causes.
const (
	CauseOtherTool       Cause = "other tool"       // a rule of another tool decides
	CauseLost            Cause = "lost"             // no rule decides: the kernel loses the packet
	CauseNothingLoaded   Cause = "nothing loaded"   // no policy is
	CauseBan             Cause = "ban"              // by command, or by a limit
	CauseUnread          Cause = "unread"           // what is loaded could not be compared with what was meant
	CauseUnknownState    Cause = "unknown state"    // the rules are of another state directory
	CauseChanged         Cause = "changed"          // somebody changed the loaded rules
	CauseClosed          Cause = "closed"           // the closed policy is loaded
	CauseOtherText       Cause = "other text"       // what is loaded was made from another text
	CauseHostMoved       Cause = "host moved"       // what the rules follow is another
	CauseHostFixed       Cause = "host fixed"       // what is in the rules is another
	CauseGrace           Cause = "grace"            // unknown connections still pass for a moment
	CauseConnectionState Cause = "connection state" // connection tracking says another
	CauseUsedUp          Cause = "used up"          // a limit is
	CauseBug             Cause = "bug in Sluice"    // as far as it can be told
)

// Endings of the comments of rules that ask for what is banned while the firewall runs.
const (
	ofCommand = " ban.command"
	ofLimit   = " limit.banned"
)

// askedBan says whether the loaded firewall decided by a ban of a kind: the rule that
// drops asks it itself, or was led to by one that does.
func (v *Live) askedBan(ending string) bool {
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

// whyDifferent says why the loaded firewall may do otherwise than the policy.
func (v *Live) whyDifferent(ctx context.Context, h *apply.Host, e *explain.Followed) {
	decider := v.Decider()
	because := func(c Cause, format string, args ...any) { v.Cause, v.Because = c, fmt.Sprintf(format, args...) }
	switch {
	case decider != nil && decider.Foreign:
		because(CauseOtherTool, "Sluice leaves the rules of other tools alone: a policy cannot open what they close.")
		return
	case v.Verdict == trace.Lost:
		because(CauseLost, "")
		return
	case !v.Loaded:
		because(CauseNothingLoaded, "No Sluice policy is loaded here.")
		return
	case v.askedBan(ofCommand):
		because(CauseBan, "One of its addresses is banned by command, which is not part of the policy.")
		return
	case v.askedBan(ofLimit):
		because(CauseBan, "One of its addresses is banned for a time, because it exceeded a limit of the running policy.")
		return
	}
	if v.otherThan(ctx, h, e, because); v.Cause != "" {
		return
	}
	if said := e.Path.Packet.State; v.State != "" && said != "" && v.State != said {
		because(CauseConnectionState, "The policy's answer is about a packet that is %s, but connection tracking says here that it is %s.", said, v.State)
		return
	}
	if rule := v.usedUp(e); rule != nil {
		because(CauseUsedUp, "The policy's answer holds only within the %s limit of %s:%d, which is used up now.", limitWords(rule, "rate", "connection"),
			filepath.Base(rule.Pos.File), rule.Pos.Line)
		return
	}
	because(CauseBug, "The loaded rules are those of this policy, as far as Sluice can tell: this may be a bug in Sluice.")
}

// otherThan says whether what is loaded was changed by hand, or made from another text
// or for another host.
func (v *Live) otherThan(ctx context.Context, h *apply.Host, e *explain.Followed, because func(Cause, string, ...any)) {
	quiet := *h
	quiet.Note, quiet.Progress = nil, nil
	s, err := quiet.Status(ctx, true)
	if err != nil {
		because(CauseUnread, "The loaded rules could not be compared with what was applied: %v.", err)
		return
	}
	const changed = "The host has changed since generation %d: %s."
	switch g := s.Generation; {
	case s.Condition == apply.Foreign || g == nil:
		because(CauseUnknownState, "The loaded rules are Sluice's, but of another state directory.")
	case len(s.Drift) > 0:
		first := apply.DescribeDifference(s.Drift[0])
		switch n := len(s.Drift) - 1; n {
		case 0:
		case 1:
			first += ", and 1 difference more"
		default:
			first += fmt.Sprintf(", and %d differences more", n)
		}
		because(CauseChanged, "The rules were changed after Sluice had loaded them: %s.", first)
	case g.Closed:
		because(CauseClosed, "The confirmed policy could not be restored: the loaded rules allow only ssh.")
	case !sameText(e.Resolved.Policy, g):
		because(CauseOtherText, "The loaded rules were made from another text: generation %d of %s, from %s.", g.Number, g.Policy, g.Created.Local().Format("2006-01-02 15:04:05"))
	case len(s.Host.Moved) > 0:
		because(CauseHostMoved, changed, g.Number, s.Host.Moved[0])
	case len(s.Host.Fixed) > 0:
		because(CauseHostFixed, changed, g.Number, s.Host.Fixed[0])
	case s.Grace > 0 && v.Verdict == trace.Allow && e.Packet.Protocol == packet.TCP:
		because(CauseGrace, "TCP packets of unknown connections still pass for a moment, so that connections from before the first load go on.")
	}
}

// usedUp is the rule of the policy whose limit is used up, where that leads to what the
// loaded firewall does.
func (v *Live) usedUp(e *explain.Followed) *policy.Rule {
	if e.Banned() {
		return nil
	}
	r, p := *e.Resolved, *e.Resolved.Policy
	r.Policy = &p
	path := e.Path
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
			path = reference.Ways(&r, e.Packet, e.Way, r.Facts.Route)[0]
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

// sameText says whether a generation was made from the files that were read now.
func sameText(p *policy.Policy, g *apply.Generation) bool {
	now, err := sourcesIn(p)
	if err != nil || len(now) != len(g.Files) {
		return false
	}
	for _, s := range now {
		same := func(f apply.File) bool { // standard input has another name there
			return (filepath.Base(f.Name) == filepath.Base(s.Name) || s.Name == StandardInput) && f.SHA256 == s.SHA256
		}
		if !slices.ContainsFunc(g.Files, same) {
			return false
		}
	}
	return true
}
