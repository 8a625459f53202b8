package rollout

import (
	"fmt"
	"slices"
	"time"
)

// Kind is a command of a person, or of the controller for one.
type Kind string

// What a person may say to a roll-out.
const (
	Check     Kind = "check" // the draft is good
	Sign      Kind = "sign"  // its bundle is signed and published
	Pause     Kind = "pause"
	Resume    Kind = "resume" // after a halt, the failures until now are accepted
	Hold      Kind = "hold"   // halt, and leave the hosts as they are
	Halt      Kind = "halt"   // as failures would
	Revert    Kind = "revert"
	Supersede Kind = "supersede"
)

// Command is a Kind with who gives it and why. By is the bundle that
// supersedes; 0: none does.
type Command struct {
	Kind Kind
	Who  string
	Why  string
	By   int64
}

// RefusedError is a command that does not fit the roll-out's phase.
type RefusedError struct {
	Kind   Kind
	Bundle int64
	Phase  Phase
	Why    string
}

func (r *RefusedError) Error() string {
	return fmt.Sprintf("the roll-out of bundle %d is %s: %s", r.Bundle, r.Phase, r.Why)
}

// begun are the phases from which a roll-out can go on by itself.
var begun = []Phase{Signed, Prefetched, Pushed, Settled}

// Do obeys a command. What follows from it, orders above all, is the next Step's.
func (r Rollout) Do(c Command, now time.Time) (Rollout, error) {
	m := &machine{Rollout: r.clone(), now: moment(now), who: c.Who}
	phase := r.State.Phase
	refuse := func(why string) (Rollout, error) {
		return r, &RefusedError{Kind: c.Kind, Bundle: r.Bundle, Phase: phase, Why: why}
	}
	because := func(text string) string {
		if c.Why != "" {
			text += ": " + c.Why
		}
		return text
	}
	if r.Closed() {
		return refuse("it has ended, and a new roll-out of the same bundle may begin")
	}
	switch c.Kind {
	case Check:
		if phase != Draft {
			return refuse("only a draft is checked")
		}
		m.enter(Checked, because("signed as hosts want it, and its roll-out can be read"))
	case Sign:
		if phase != Checked {
			return refuse("a bundle is signed once it is checked, and once")
		}
		m.State.Prefetch = m.now
		m.enter(Signed, because("published, and no stage has begun"))
	case Pause:
		if !slices.Contains(begun, phase) && phase != Draft && phase != Checked {
			return refuse("only one that is under way can be paused")
		}
		m.State.Was = phase
		m.enter(Paused, because("paused by "+c.Who))
	case Resume:
		return m.resume(because, refuse)
	case Hold, Halt:
		switch {
		case phase == Paused:
		case phase == Reverting && c.Kind == Hold, slices.Contains(begun, phase), phase == Done:
			m.State.Was = phase
		case phase == Halted:
			return refuse("it is halted already")
		default:
			return refuse("there is nothing to stop")
		}
		m.State.Hold = c.Kind == Hold || r.Plan.OnHalt == OnHaltHold
		m.enter(Halted, because("halted by "+c.Who))
	case Revert:
		switch {
		case phase == Reverting:
			return refuse("its hosts are going back already")
		case len(r.State.Hosts) == 0:
			return refuse("no host was told the bundle, so none has to go back")
		}
		m.revert(because("taken back by " + c.Who))
	case Supersede:
		m.State.By = c.By
		text := "ended by " + c.Who
		if c.By != 0 {
			text = fmt.Sprintf("bundle %d took its place", c.By)
		}
		m.enter(Superseded, because(text))
	default:
		return refuse(fmt.Sprintf("it knows no command %q", c.Kind))
	}
	return m.Rollout, nil
}

func (m *machine) resume(because func(string) string, refuse func(string) (Rollout, error)) (Rollout, error) {
	was := m.State.Was
	switch {
	case m.State.Phase != Paused && m.State.Phase != Halted:
		return refuse("it is neither paused nor halted")
	case was == Reverting:
		return refuse("some of its hosts are back on the bundle before: begin a new roll-out")
	}
	text := "resumed by " + m.who
	if m.State.Phase == Halted {
		for id, h := range m.State.Hosts {
			h.Excused = h.Excused || h.Failed
			m.State.Hosts[id] = h
		}
		text += ", who accepts the failures until now"
	}
	// The time to settle starts again: nobody looked meanwhile.
	m.State.Was, m.State.Hold, m.State.Quiet = "", false, time.Time{}
	m.enter(was, because(text))
	return m.Rollout, nil
}

// revert begins the way back.
func (m *machine) revert(reason string) { m.State.Hold = false; m.enter(Reverting, reason) }
