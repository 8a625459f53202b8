package rollout

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/internal/base/english"
	"sluice/internal/base/sorting"
)

// prefetch asks hosts to fetch the bundle, so many at once, until each that is online has
// it or the time for it is over.
func (m *machine) prefetch() bool {
	if m.Plan.Prefetch == 0 {
		m.enter(Prefetched, "hosts fetch the bundle when they are told")
		return true
	}
	have, lacking, busy := 0, []string(nil), 0
	for _, id := range slices.Sorted(maps.Keys(m.seen)) {
		switch s := m.seen[id]; {
		case s.Fetched:
			have++
		case s.Online && s.Level >= m.Plan.Level:
			lacking = append(lacking, id)
			if at, asked := m.State.Asked[id]; asked && m.now.Before(at.Add(time.Duration(m.Plan.Answer))) {
				busy++
			}
		}
	}
	end := m.State.Prefetch.Add(time.Duration(m.Plan.Prefetch))
	if len(lacking) == 0 || !m.now.Before(end) {
		m.State.Asked = nil
		text := english.Plural(have, "host") + " fetched the bundle"
		if len(lacking) > 0 {
			text += fmt.Sprintf(", %d did not within %s: %s", len(lacking), m.Plan.Prefetch, english.Few(lacking, 3))
		}
		m.enter(Prefetched, text)
		return true
	}
	// Those that were never asked come before those that did not answer.
	sorting.StableBy(lacking, func(a, b string) int { return m.State.Asked[a].Compare(m.State.Asked[b]) })
	for _, id := range lacking {
		at, asked := m.State.Asked[id]
		if m.Plan.Pace > 0 && busy >= m.Plan.Pace {
			break
		}
		if asked && m.now.Before(at.Add(time.Duration(m.Plan.Answer))) {
			continue
		}
		if m.State.Asked == nil {
			m.State.Asked = map[string]time.Time{}
		}
		m.State.Asked[id] = m.now
		m.orders = append(m.orders, Order{Host: id, Bundle: m.Bundle, Prefetch: true})
		busy++
	}
	return m.wait(fmt.Sprintf("%s to fetch the bundle, at most until %s", english.Plural(len(lacking), "host"), english.Moment(end)))
}

// begin fixes the hosts of a stage and tells them, unless no stage may begin now. A stage
// that adds no host is skipped.
func (m *machine) begin(stage int) bool {
	if why := m.barred(); why != "" {
		return m.wait(why)
	}
	for ; stage < len(m.Plan.Stages); stage++ {
		hosts := m.choose(stage)
		if len(hosts) == 0 {
			if len(m.State.Hosts) == 0 && stage == 0 {
				return m.wait(m.nobody())
			}
			continue
		}
		m.State.Stage, m.State.Quiet = stage, time.Time{}
		m.tell(hosts, stage)
		m.enter(Pushed, fmt.Sprintf("%s: %s told: %s", m.stageName(stage), english.Plural(len(hosts), "host"), english.Few(hosts, 3)))
		return true
	}
	m.State.Stage = len(m.Plan.Stages)
	confirmed, failed := 0, 0
	for _, h := range m.State.Hosts {
		switch {
		case h.Failed:
			failed++
		case h.State == Confirmed:
			confirmed++
		}
	}
	text := english.Plural(confirmed, "host") + " confirmed the bundle"
	if failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	if rest := len(m.seen) - len(m.State.Hosts); rest > 0 {
		text += fmt.Sprintf(", %d take it when they can", rest)
	}
	m.enter(Done, text)
	return true
}

// barred is why no host may be told anything new now; empty if one may.
func (m *machine) barred() string {
	if m.now.Before(m.Plan.NotBefore) {
		return "waits for its time: not before " + english.Moment(m.Plan.NotBefore)
	}
	end, window, err := frozen(m.Plan.Freeze, m.now)
	if err != nil {
		return fmt.Sprintf("no stage begins: the freeze window %s cannot be evaluated: %v", window, err)
	}
	if !end.IsZero() {
		return fmt.Sprintf("frozen (%s) until %s", window, english.Moment(end))
	}
	return ""
}

// nobody says why the first stage finds no host.
func (m *machine) nobody() string {
	offline, unproved := 0, 0
	for _, s := range m.seen {
		switch {
		case !s.Online:
			offline++
		case s.Level >= m.Plan.Level:
			unproved++
		}
	}
	if len(m.seen) == 0 {
		return "waits for the first host to be enrolled"
	}
	return fmt.Sprintf("waits for a host that is online and proved, to be the first: %d offline, %d unproved, %d with an agent too old",
		offline, unproved, len(m.State.LeftOut))
}

func (m *machine) tell(hosts []string, stage int) {
	if m.State.Hosts == nil {
		m.State.Hosts = map[string]Host{}
	}
	for _, id := range hosts {
		s := m.seen[id]
		m.State.Hosts[id] = Host{
			Class: s.Class, Stage: stage, State: Told, Before: s.Running, Target: m.Bundle, Told: m.now, Since: m.now,
		}
		m.orders = append(m.orders, Order{Host: id, Bundle: m.Bundle})
	}
}

// free are the hosts that could be told: online, of the language's level, not told yet by
// this roll-out or a newer one. Of those, the proved ones, and those that have no bundle
// yet, unless any will do. They are in an order that is another for each roll-out.
func (m *machine) free(whichever bool) []string {
	var ids []string
	for id, s := range m.seen {
		_, told := m.State.Hosts[id]
		fit := s.Proved || s.Running == 0 || whichever
		if !told && fit && s.Online && s.Level >= m.Plan.Level && s.Ordered <= m.ID {
			ids = append(ids, id)
		}
	}
	order := make(map[string]uint64, len(ids))
	for _, id := range ids {
		h := fnv.New64a()
		_ = binary.Write(h, binary.BigEndian, m.ID)
		_, _ = h.Write([]byte(id))
		order[id] = h.Sum64()
		if s := m.seen[id]; !s.Proved {
			order[id] |= 1 << 63 // behind the proved ones
		} else {
			order[id] &^= 1 << 63
		}
	}
	slices.Sort(ids)
	sorting.StableBy(ids, func(a, b string) int {
		switch {
		case order[a] < order[b]:
			return -1
		case order[a] > order[b]:
			return 1
		}
		return 0
	})
	return ids
}

// choose picks the hosts of a stage.
func (m *machine) choose(stage int) []string {
	s := m.Plan.Stages[stage]
	free := m.free(s.Percent == 100)
	var hosts []string
	switch {
	case s.PerClass > 0:
		have := map[string]int{}
		for _, h := range m.State.Hosts {
			have[h.Class]++
		}
		for _, id := range free {
			if class := m.seen[id].Class; have[class] < s.PerClass {
				have[class]++
				hosts = append(hosts, id)
			}
		}
	default:
		able := 0
		for id, seen := range m.seen {
			if _, told := m.State.Hosts[id]; told || seen.Level >= m.Plan.Level {
				able++
			}
		}
		want := s.Hosts
		if s.Percent > 0 {
			want = share(s.Percent, able)
		}
		want -= len(m.State.Hosts)
		for _, id := range m.oneOfEachNew(free) {
			if len(hosts) >= want {
				break
			}
			hosts = append(hosts, id)
		}
	}
	slices.Sort(hosts)
	return hosts
}

// oneOfEachNew takes out all hosts but one of each class of which none has confirmed the
// bundle, where the plan wants canaries of each class: a class whose hosts were all away
// meanwhile gets its canary later.
func (m *machine) oneOfEachNew(ids []string) []string {
	if m.Plan.Stages[0].PerClass == 0 {
		return ids
	}
	const (
		untried = iota
		trying
		tried
	)
	classes := map[string]int{}
	for id, h := range m.State.Hosts {
		switch _, there := m.seen[id]; {
		case h.State == Confirmed:
			classes[h.Class] = tried
		case there && classes[h.Class] == untried && !h.Failed:
			classes[h.Class] = trying
		}
	}
	var out []string
	for _, id := range ids {
		class := m.seen[id].Class
		if classes[class] == trying {
			continue
		}
		if classes[class] == untried {
			classes[class] = trying
		}
		out = append(out, id)
	}
	return out
}

// late tells the bundle of a roll-out that is done to hosts that were away. In a freeze
// only those take it that have no bundle at all.
func (m *machine) late() bool {
	stage := len(m.Plan.Stages)
	barred := m.barred()
	var hosts []string
	for _, id := range m.oneOfEachNew(m.free(true)) {
		if barred == "" || m.seen[id].Running == 0 {
			hosts = append(hosts, id)
		}
	}
	if len(hosts) == 0 {
		return false
	}
	slices.Sort(hosts)
	m.tell(hosts, stage)
	return true
}

// mayReturn says whether a host can be told what it ran before.
func (m *machine) mayReturn(h Host) bool {
	return h.Target == m.Bundle && h.Before > 0 && h.Before != m.Bundle && h.Before >= m.Plan.Floor
}

// turnBack begins the revert that follows a halt.
func (m *machine) turnBack() bool {
	if m.State.Hold {
		return false
	}
	for _, h := range m.State.Hosts {
		if m.mayReturn(h) {
			m.enter(Reverting, m.State.Reason)
			return true
		}
	}
	m.State.Hold = true
	return m.wait(m.State.Reason + "; no host has a bundle to go back to, so they stay as they are")
}

// reverting tells the hosts their bundle of before, and waits for those that answer.
func (m *machine) reverting() bool {
	var waiting, silent, stay []string
	back := 0
	for _, id := range slices.Sorted(maps.Keys(m.State.Hosts)) {
		h := m.State.Hosts[id]
		s, there := m.seen[id]
		if there && s.Ordered <= m.ID && m.mayReturn(h) {
			h.Target, h.Told = h.Before, m.now
			m.orders = append(m.orders, Order{Host: id, Bundle: h.Before})
		}
		rep := s.Report
		h.Back = h.Back || rep.Rollout == m.ID && rep.Bundle == h.Target && h.Target != m.Bundle && rep.State == Confirmed
		m.State.Hosts[id] = h
		switch {
		case !there, s.Ordered > m.ID: // removed, or a newer roll-out's by now
		case h.Target == m.Bundle:
			stay = append(stay, id)
		case h.Back:
			back++
		case m.now.Before(m.deadline(h)):
			waiting = append(waiting, id)
		default:
			if why, _, _ := strings.Cut(m.trouble(h, s), "\n"); why != "" {
				id += " (" + why + ")"
			}
			silent = append(silent, id)
		}
	}
	if len(waiting) > 0 {
		return m.wait(fmt.Sprintf("%s; waits for %s to go back: %s", m.cause(), english.Plural(len(waiting), "host"), english.Few(waiting, 3)))
	}
	text := fmt.Sprintf("%s; %s back", m.cause(), english.Plural(back, "host"))
	if len(silent) > 0 {
		text += fmt.Sprintf(", %d did not answer and go back when they do: %s", len(silent), english.Few(silent, 3))
	}
	if len(stay) > 0 {
		text += fmt.Sprintf(", %d had no earlier bundle that may be enforced and keep this one: %s", len(stay), english.Few(stay, 3))
	}
	m.enter(Reverted, text)
	return true
}

// cause is why the roll-out began to revert.
func (m *machine) cause() string {
	for _, h := range slices.Backward(m.State.History) {
		if h.Phase == Reverting {
			return h.Reason
		}
	}
	return m.State.Reason
}
