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

// nothingBoots says in a sentence why no policy is loaded at boot, and the way back.
func (s store) nothingBoots(sentence string) error {
	last := s.newest(confirmed)
	if last == nil {
		return remedied(ApplyOne, fmt.Errorf(sentence, "no policy was ever confirmed"))
	}
	why, out := "no policy is confirmed now", RemedyError{Remedy: ApplyAgainOrGoBack}
	if gone := s.newest(removed); gone != nil {
		why = "the policy was removed at " + gone.at.Local().Format(time.DateTime)
	}
	if !last.generation.Closed {
		out.Remedy, out.Generation = ApplyAgainOrGoTo, last.generation.Number
	}
	out.Err = fmt.Errorf(sentence, why)
	return &out
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
	return fmt.Sprintf("generation %d was rolled back at %s, since nobody had confirmed it", gone.generation.Number, gone.at.Local().Format(time.DateTime))
}
