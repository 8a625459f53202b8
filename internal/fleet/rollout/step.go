package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/internal/base/english"
	"sluice/internal/base/sorting"
)

// machine is one step of a roll-out.
type machine struct {
	Rollout

	seen   map[string]Seen
	now    time.Time
	who    string
	orders []Order
}

// Step takes a roll-out as far as it goes with what is seen now. A host that is not in
// seen was removed from the fleet: a controller that could not read all of them does not
// step. The same step again changes nothing and orders nothing.
func (r Rollout) Step(seen map[string]Seen, now time.Time) (Rollout, []Order) {
	if r.Closed() {
		return r, nil
	}
	m := &machine{Rollout: r.clone(), seen: seen, now: moment(now)}
	m.behind()
	m.leaveOut()
	for id, h := range m.State.Hosts {
		if s, there := seen[id]; there {
			m.State.Hosts[id] = m.absorb(h, s)
		}
	}
	for m.advance() {
	}
	m.State.Until = moment(m.until())
	return m.Rollout, m.orders
}

// moment is a time as JSON gives it back.
func moment(t time.Time) time.Time { return t.Round(0).UTC() }

// behind has what another controller wrote by a clock that was ahead begin now, or its
// hosts would be waited for until this clock is there.
func (m *machine) behind() {
	for _, at := range []*time.Time{&m.State.Quiet, &m.State.Prefetch} {
		*at = m.notAfter(*at)
	}
	for id, at := range m.State.Asked {
		m.State.Asked[id] = m.notAfter(at)
	}
	for id, h := range m.State.Hosts {
		h.Told = m.notAfter(h.Told)
		m.State.Hosts[id] = h
	}
}

func (m *machine) notAfter(at time.Time) time.Time {
	if at.After(m.now) {
		return m.now
	}
	return at
}

// enter moves the roll-out and writes its history.
func (m *machine) enter(phase Phase, reason string) {
	m.State.Phase, m.State.Reason, m.State.Since, m.State.Until = phase, reason, m.now, time.Time{}
	m.State.History = append(m.State.History, Moved{At: m.now, Phase: phase, Stage: m.State.Stage, Reason: reason, Who: m.who})
}

// wait says what it waits for; it never goes on.
func (m *machine) wait(reason string) bool {
	m.State.Reason = reason
	return false
}

// absorb takes what a host said, and counts it failed where it refused, went back, drifted
// or said nothing in time.
func (m *machine) absorb(h Host, s Seen) Host {
	rep := s.Report
	if rep.Rollout == m.ID && rep.Bundle == m.Bundle && rank[rep.State] > rank[h.State] {
		h.State, h.Since, h.Evidence = rep.State, moment(rep.At), rep.Evidence
		if h.Failed {
			h.Reason += "; later " + string(rep.State)
		} else {
			h.Reason = rep.Error
		}
	}
	if h.Target != m.Bundle || h.Failed {
		return h
	}
	fail := func(reason string) {
		h.Failed, h.Reason = true, reason
	}
	switch {
	case h.State == Refused:
		fail(said("it refused the bundle", h.Reason))
	case h.State == TakenBack:
		fail(said("it took the bundle back", h.Reason))
	case h.State != Confirmed && !m.now.Before(m.deadline(h)):
		if why := m.trouble(h, s); why != "" {
			fail(fmt.Sprintf("it had %s to confirm, and is %s: %s", m.Plan.Answer+m.Plan.Confirm, h.State, why))
		} else {
			fail(fmt.Sprintf("silent: its last state was %s, and it had %s to confirm", h.State, m.Plan.Answer+m.Plan.Confirm))
		}
	case h.State == Confirmed && h.Stage == m.State.Stage && m.State.Phase == Pushed && s.Drifted != "":
		fail("drifted while it settled: " + s.Drifted)
	}
	return h
}

// trouble is what a host says keeps it for now from what it was told, such as a full disk.
func (m *machine) trouble(h Host, s Seen) string {
	if s.Report.Rollout != m.ID || s.Report.Bundle != h.Target {
		return ""
	}
	return s.Report.Error
}

func said(what, why string) string {
	if why == "" {
		return what + ", and did not say why"
	}
	return what + ": " + why
}

// deadline is when a host that was told something has to have confirmed.
func (m *machine) deadline(h Host) time.Time {
	return h.Told.Add(time.Duration(m.Plan.Answer + m.Plan.Confirm))
}

// leaveOut names the hosts whose agents are too old for the bundle, before any is told.
func (m *machine) leaveOut() {
	m.State.LeftOut = nil
	for id, s := range m.seen {
		if level := s.Level; level > 0 && level < m.Plan.Level {
			m.State.LeftOut = append(m.State.LeftOut, LeftOut{Host: id, Reason: fmt.Sprintf(
				"its agent reads language level %d and the bundle is written in %d: it takes the bundle once sluice is upgraded there", level, m.Plan.Level)})
		}
	}
	sorting.By(m.State.LeftOut, func(a, b LeftOut) int { return strings.Compare(a.Host, b.Host) })
}

// advance does one thing that is due, and says whether it did.
func (m *machine) advance() bool {
	if m.halts() {
		return true
	}
	switch m.State.Phase {
	case Signed:
		return m.prefetch()
	case Prefetched:
		return m.begin(0)
	case Pushed:
		return m.settle()
	case Settled:
		return m.begin(m.State.Stage + 1)
	case Done:
		return m.late()
	case Halted:
		return m.turnBack()
	case Reverting:
		return m.reverting()
	}
	return false // Draft, Checked, Paused: a person comes next
}

// halts stops the roll-out where too many hosts failed, or its bundle may no longer be
// enforced.
func (m *machine) halts() bool {
	phase := m.State.Phase
	if phase == Paused {
		phase = m.State.Was
	}
	if !slices.Contains(begun, phase) && phase != Done {
		return false
	}
	var reason string
	hold := m.Plan.OnHalt == OnHaltHold
	if m.Bundle < m.Plan.Floor {
		reason, hold = fmt.Sprintf("bundle %d is below %d, the oldest that may be enforced: roll out a newer one", m.Bundle, m.Plan.Floor), true
	} else if reason = m.tooMany(0, 1, "canary", m.Plan.Halt.canaries()); reason == "" {
		last := len(m.Plan.Stages)
		beyond := m.tooMany(1, last, "host", m.Plan.Halt.beyond(m.count(1, last)))
		late := m.tooMany(last, last+1, "late host", m.Plan.Halt.beyond(m.count(last, last+1)))
		if reason = beyond; reason == "" && late != "" {
			// Hosts that were long away say little about those that have it.
			reason, hold = late, true
		}
	}
	if reason == "" {
		return false
	}
	m.State.Was, m.State.Hold = phase, hold
	m.enter(Halted, reason)
	return true
}

func (m *machine) count(from, to int) int {
	n := 0
	for _, h := range m.State.Hosts {
		if h.Stage >= from && h.Stage < to {
			n++
		}
	}
	return n
}

// tooMany names the failed hosts of the stages from one to before another, where they
// reach the limit.
func (m *machine) tooMany(from, to int, word string, limit int) string {
	var failed []string
	for id, h := range m.State.Hosts {
		if !h.Failed || h.Excused || h.Stage < from || h.Stage >= to {
			continue
		}
		if _, there := m.seen[id]; there {
			failed = append(failed, id)
		}
	}
	if len(failed) == 0 || len(failed) < limit {
		return ""
	}
	slices.Sort(failed)
	reason, _, more := strings.Cut(m.State.Hosts[failed[0]].Reason, "\n") // the host has all of it
	if more {
		reason += " …"
	}
	return fmt.Sprintf("%d of %s failed, and the roll-out halts at %d: %s: %s", len(failed), english.Plural(m.count(from, to), word), limit, english.Few(failed, 3), reason)
}

// settle waits for the hosts of a stage, then for the time that they stay confirmed.
func (m *machine) settle() bool {
	var waiting, away, failed []string
	members := 0
	for id, h := range m.State.Hosts {
		s, there := m.seen[id]
		if h.Stage != m.State.Stage || !there {
			continue
		}
		members++
		switch {
		case h.Failed:
			failed = append(failed, id)
		case h.State != Confirmed:
			waiting = append(waiting, id)
		case !s.Online:
			away = append(away, id)
		}
	}
	for _, ids := range [][]string{waiting, away, failed} {
		slices.Sort(ids)
	}
	name := m.stageName(m.State.Stage)
	if len(waiting) > 0 {
		m.State.Quiet = time.Time{}
		for i, id := range waiting[:min(3, len(waiting))] {
			h := m.State.Hosts[id]
			state := string(h.State)
			if why, _, _ := strings.Cut(m.trouble(h, m.seen[id]), "\n"); why != "" {
				state += ": " + why
			}
			waiting[i] = fmt.Sprintf("%s (%s)", id, state)
		}
		return m.wait(fmt.Sprintf("%s: waits for %d of %s: %s", name, len(waiting), english.Plural(members, "host"), english.Few(waiting, 3)))
	}
	if m.State.Quiet.IsZero() {
		m.State.Quiet = m.now
	}
	settled := m.settled()
	if m.now.Before(settled) {
		return m.wait(fmt.Sprintf("%s: %s confirmed, settles until %s", name, english.Plural(members-len(failed), "host"), english.Moment(settled)))
	}
	if len(away) > 0 {
		// It confirmed by a new connection; that it left since may be the bundle's doing.
		if m.now.Before(settled.Add(time.Duration(m.Plan.Answer))) {
			return m.wait(fmt.Sprintf("%s: waits for %s, which confirmed and went away: %s", name, english.Plural(len(away), "host"), english.Few(away, 3)))
		}
		for _, id := range away {
			h := m.State.Hosts[id]
			h.Failed, h.Reason = true, "it confirmed, went away and did not come back while the stage settled"
			m.State.Hosts[id] = h
		}
		return true
	}
	text := fmt.Sprintf("%s: %s confirmed", name, english.Plural(members-len(failed), "host"))
	if len(failed) > 0 {
		text += fmt.Sprintf(", %d failed: %s", len(failed), english.Few(failed, 3))
	}
	m.enter(Settled, text)
	return true
}

// settled is when the stage has settled.
func (m *machine) settled() time.Time { return m.State.Quiet.Add(time.Duration(m.Plan.Settle)) }

func (m *machine) stageName(stage int) string {
	if stage >= len(m.Plan.Stages) {
		return "hosts that came late"
	}
	return fmt.Sprintf("stage %d of %d (%s)", stage+1, len(m.Plan.Stages), m.Plan.Stages[stage])
}

// until is when the next step is due though nothing is heard.
func (m *machine) until() time.Time {
	var next time.Time
	due := func(t time.Time) {
		if t.After(m.now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	phase := m.State.Phase
	if phase == Paused {
		phase = m.State.Was
	}
	switch phase {
	case Signed:
		due(m.State.Prefetch.Add(time.Duration(m.Plan.Prefetch)))
		for _, asked := range m.State.Asked {
			due(asked.Add(time.Duration(m.Plan.Answer)))
		}
	case Pushed, Settled, Done, Reverting:
		for id, h := range m.State.Hosts {
			_, there := m.seen[id]
			back := h.Target != m.Bundle && h.Back
			if there && !h.Failed && !back && (h.State != Confirmed || h.Target != m.Bundle) || there && phase == Reverting && !back {
				due(m.deadline(h))
			}
		}
		if phase == Pushed && !m.State.Quiet.IsZero() {
			due(m.settled())
			due(m.settled().Add(time.Duration(m.Plan.Answer)))
		}
	}
	if m.State.Phase == Prefetched || m.State.Phase == Settled || m.State.Phase == Done {
		due(m.Plan.NotBefore)
		end, _, _ := frozen(m.Plan.Freeze, m.now)
		due(end)
	}
	return next
}
