package live

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/backend/trace"
	"sluice/internal/base/packet"
	"sluice/internal/system/kernel/nft"
	"sluice/internal/system/kernel/nftrace"
	"sluice/internal/system/kernel/replica"
)

// hookName is the hook of a base chain.
func hookName(c nft.Chain) string {
	names := []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}
	if c.Family == unix.NFPROTO_NETDEV {
		names = []string{"ingress", "egress"}
	}
	if int(c.Hook) < len(names) {
		return names[c.Hook]
	}
	return ""
}

// journey is what the events say.
type journey struct {
	*trace.Result
	x       *experiment
	rules   rules
	passed  map[string]bool // names of own chains that saw the packet
	dropped int             // index of the step that dropped or queued it, -1
}

// result makes the answer of what was gathered.
func (x *experiment) result() *trace.Result {
	j := &journey{
		Result: &trace.Result{Decided: -1, Packet: x.question.Packet, Notes: x.copy.Notes, Way: x.question.Way, Steps: []trace.Step{}},
		x:      x, rules: rules{x.copy.Rules.Chains, x.texts, x.own}, passed: map[string]bool{}, dropped: -1,
	}
	j.Loaded = slices.ContainsFunc(x.copy.Rules.Chains, func(c nft.Chain) bool { return c.Table == x.own[0] })
	// A rule that was copied may mark what the copy itself sends, such as reports of
	// multicast groups: the way of such a packet begins there, not in the own table.
	ours := map[uint32]bool{}
	for _, e := range x.events {
		if _, seen := ours[e.ID]; !seen {
			ours[e.ID] = e.Table == tableName
		}
		if !ours[e.ID] {
			continue
		}
		if p, ok := rewritten(j.Packet, e.Network, e.Transport); ok {
			j.Packet = p
		}
		if e.Out != 0 {
			j.Packet.Out = x.nameOf(e.Out)
		}
		switch e.Table {
		case tableName:
			j.own(e)
		case sampleTable: // copied with the rest
		default:
			j.step(e)
		}
	}
	j.mergeLegacy()
	j.way()
	j.judge()
	if asked := j.x.question.Packet.State; asked != "" && j.State != "" && j.State != asked {
		j.Notes = append(j.Notes, fmt.Sprintf("the question was about state %s, but connection tracking on this host says %s", asked, j.State))
	}
	j.Packet.State = j.State
	return j.Result
}

func (x *experiment) nameOf(index int) string {
	for _, l := range x.copy.Links {
		if l.Index == index {
			return l.Name
		}
	}
	return ""
}

// own notes that the packet came by one of the own chains.
func (j *journey) own(e nftrace.Event) {
	j.passed[e.Chain] = true
	if state, is := strings.CutPrefix(e.To, statePart); is && j.State == "" {
		j.State = packet.State(state)
	}
}

// step adds what one event says.
func (j *journey) step(e nftrace.Event) {
	handle := j.x.copy.Rules.Original(replica.Place{Family: e.Family, Table: e.Table, Chain: e.Chain, Handle: e.Handle})
	s, is := j.rules.step(e, handle, j.Steps)
	if !is {
		return
	}
	if s.Verdict == "drop" || s.Verdict == "reject" || s.Verdict == "queue" {
		j.dropped = len(j.Steps)
	}
	j.Steps = append(j.Steps, s)
}

// rules are those of a network namespace, by which an event says what happened.
type rules struct {
	chains []nft.Chain
	texts  *listing
	own    []string // tables of Sluice's
}

// step is what one event says, behind the steps before; false where that is nothing. The
// handle is that of the event's rule in the namespace that was read.
func (r *rules) step(e nftrace.Event, handle uint64, before []trace.Step) (s trace.Step, is bool) {
	s = trace.Step{Family: nft.Families[e.Family], Table: e.Table, Chain: e.Chain, Foreign: !slices.Contains(r.own, e.Table)}
	last := len(before) - 1
	base := slices.IndexFunc(r.chains, func(c nft.Chain) bool {
		return c.Base && c.Family == e.Family && c.Table == e.Table && c.Name == e.Chain
	})
	switch {
	case base >= 0:
		s.Hook, s.Priority = hookName(r.chains[base]), r.chains[base].Priority
	case last >= 0: // a rule has led there
		s.Hook, s.Priority = before[last].Hook, before[last].Priority
	}
	switch e.Type {
	case nftrace.Rule:
		if e.Handle == 0 {
			return s, false // a kernel tells the end of a chain in this way too
		}
		s.Handle = handle
		text := r.texts.rules[rulePlace{s.Family, s.Table, s.Chain, s.Handle}]
		s.Rule, s.Comment, s.Number = text.text, text.comment, text.number
		if !s.Foreign {
			s.Line, s.Counter = r.texts.line(s.Family, s.Table, text)
			// A rule that lines share is of the one that led to its chain.
			if s.Line == "" && last >= 0 && (before[last].Verdict == "jump "+s.Chain || before[last].Verdict == "goto "+s.Chain) {
				s.Line, s.Counter = before[last].Line, before[last].Counter
			}
		}
		s.Verdict = verdictWord(e)
		if e.Verdict == nftrace.Drop && strings.Contains(" "+s.Rule+" ", " reject ") {
			s.Verdict = "reject"
		}
	case nftrace.Policy:
		s.Rule, s.Verdict = "policy", "accept"
		if e.Policy == nftrace.Drop {
			s.Verdict = "drop"
		}
	default:
		return s, false // the end of a chain that was jumped to
	}
	return s, true
}

func verdictWord(e nftrace.Event) string {
	switch e.Verdict {
	case nftrace.Drop:
		return "drop"
	case nftrace.Accept:
		return "accept"
	case nftrace.Stolen:
		return "stolen"
	case nftrace.Queue:
		return "queue"
	case nftrace.Continue, nftrace.Break:
		return "continue"
	case nftrace.Jump:
		return "jump " + e.To
	case nftrace.Goto:
		return "goto " + e.To
	case nftrace.Returned:
		return "return"
	}
	return fmt.Sprintf("verdict %d", e.Verdict)
}

// mergeLegacy puts the rules of legacy iptables among the others.
func (j *journey) mergeLegacy() {
	place := func(s trace.Step) int { return slices.Index(hooks, s.Hook) }
	for _, s := range legacySteps(j.x.hits) {
		at := len(j.Steps)
		for i, other := range j.Steps {
			if place(other) > place(s) || place(other) == place(s) && other.Priority > s.Priority {
				at = i
				break
			}
		}
		j.Steps = slices.Insert(j.Steps, at, s)
		if j.dropped >= at {
			j.dropped++
		}
	}
}

// way says where the packet went.
func (j *journey) way() {
	switch {
	case j.x.question.Way == packet.Out:
	case j.passed["forward"+firstChain]:
		j.Way = packet.Through
	case j.passed["input"+firstChain]:
		j.Way = packet.In
	}
}

// judge says what happened to the packet.
func (j *journey) judge() {
	arrived := j.passed["input"+lastChain]
	leaves := j.passed["postrouting"+lastChain] && j.Packet.Out != "lo"
	for _, l := range j.x.left {
		if answer := describeAnswer(j.x.question.Packet, l.Packet); answer != "" {
			j.Answer = answer
			break
		}
	}
	switch {
	case j.dropped >= 0 && j.Steps[j.dropped].Verdict == "queue":
		j.Verdict, j.Decided = trace.Queue, j.dropped
	case j.dropped >= 0:
		j.Verdict, j.Decided = trace.Drop, j.dropped
		if j.Answer != "" || j.Steps[j.dropped].Verdict == "reject" {
			j.Verdict = trace.Reject
		}
	case arrived || leaves:
		j.Verdict, j.Answer = trace.Allow, ""
		j.Decided = j.allower()
	default:
		j.vanished()
	}
}

// allower is the step that let the packet pass: the last word of Sluice's rules where
// they had one, else of anybody's, in the hook that decides.
func (j *journey) allower() int {
	hook := map[packet.Way]string{packet.In: "input", packet.Through: "forward", packet.Out: "output"}[j.Way]
	best := -1
	for i, s := range j.Steps {
		if s.Verdict != "accept" || s.Hook != hook {
			continue
		}
		if best < 0 || !s.Foreign || j.Steps[best].Foreign {
			best = i
		}
	}
	return best
}

// vanished is for a packet that no chain of nf_tables dropped and that came nowhere.
func (j *journey) vanished() {
	for i, s := range j.Steps {
		if s.Legacy && (s.Verdict == "drop" || s.Verdict == "reject") {
			j.Verdict, j.Decided = trace.Drop, i
			if s.Verdict == "reject" {
				j.Verdict = trace.Reject
			}
			return
		}
	}
	for i, s := range j.Steps {
		if s.Verdict == "queue" {
			j.Verdict, j.Decided = trace.Queue, i
			return
		}
	}
	j.Verdict, j.Why = trace.Lost, j.x.lossReason(j.passed)
}
