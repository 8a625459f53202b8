package apply

import (
	"fmt"
	"time"
)

// became is what history says last of a policy that neither runs nor boots, for who
// asks for it. None is nil.
type became struct {
	generation *Generation
	at         time.Time
}

// newest is the newest event of a kind. Nothing where the history cannot be read, since
// it is only told.
func (s store) newest(kinds ...string) (out *became) {
	numbers, _ := s.numbers()
	for _, n := range numbers {
		g, err := s.generation(n)
		if err != nil {
			continue
		}
		for _, e := range g.Events {
			for _, kind := range kinds {
				if e.What == kind && (out == nil || !e.Time.Before(out.at)) {
					out = &became{g, e.Time}
				}
			}
		}
	}
	return out
}

// nothingBoots says why no policy is loaded at boot, and the way back, as part of a
// sentence and a hint.
func (s store) nothingBoots() (why, hint string) {
	last := s.newest(confirmed)
	if last == nil {
		return "no policy was ever confirmed", "apply one"
	}
	why, hint = "no policy is confirmed any more", "apply it again, or sluice rollback to a generation of sluice history"
	if gone := s.newest(removed); gone != nil {
		why = "the policy was removed at " + gone.at.Local().Format(time.DateTime)
	}
	if !last.generation.Closed {
		hint = fmt.Sprintf("apply it again, or sluice rollback %d", last.generation.Number)
	}
	return why, hint
}

// lastExpired says which generation was taken back since nobody confirmed it; "" where
// something was applied or confirmed since.
func (s store) lastExpired() string {
	gone := s.newest(expired)
	if gone == nil {
		return ""
	}
	if since := s.newest(applied, refreshed, confirmed); since != nil && since.at.After(gone.at) {
		return ""
	}
	return fmt.Sprintf("generation %d was taken back at %s, since nobody had confirmed it", gone.generation.Number, gone.at.Local().Format(time.DateTime))
}
