package shadow

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"sluice/internal/program"
)

// aboutTracking says whether a condition asks connection tracking.
func aboutTracking(c program.Condition) bool {
	fields := []program.Field{
		program.State, program.Direction, program.Status,
		program.OriginalSource, program.OriginalDestination, program.OriginalPort,
	}
	return slices.Contains(fields, c.Field) || slices.ContainsFunc(c.SetKey, func(f program.Field) bool { return slices.Contains(fields, f) })
}

// match is what is left of conditions for packets that are out of tracking; false
// where such a packet cannot match. Without a conntrack entry the kernel knows
// neither direction nor status nor original addresses, and such a condition fails
// either way round (nft_ct_get_eval).
func (j *judging) match(conditions []program.Condition) ([]program.Condition, bool) {
	out := make([]program.Condition, 0, len(conditions))
	for _, c := range conditions {
		if c.Set != "" && j.to.Set(c.Set) == nil {
			return nil, false // nobody is in it
		}
		switch {
		case !j.outOfTracking || !aboutTracking(c):
			out = append(out, c)
		case c.Field != program.State || len(c.SetKey) > 0:
			return nil, false
		case slices.Contains(c.Names, "untracked") == c.Not:
			return nil, false
		}
	}
	return out, true
}

// asksState says whether a rule of the candidate, or of a chain that it leads to,
// asks connection tracking.
func (j *judging) asksState(r *program.Rule) bool {
	if slices.ContainsFunc(r.Match, aboutTracking) {
		return true
	}
	for _, a := range r.Actions {
		for _, name := range j.from.Leads(a) {
			if chain := j.from.Chain(name); chain != nil {
				for i := range chain.Rules {
					if j.asksState(&chain.Rules[i]) {
						return true
					}
				}
			}
		}
	}
	return false
}

// sortStages puts rules of a base chain into the order in which they are asked.
func sortStages(rules []program.Rule) {
	place := map[program.Stage]int{}
	for i, s := range program.Stages {
		place[s.Stage] = i
	}
	slices.SortStableFunc(rules, func(a, b program.Rule) int { return place[a.Stage] - place[b.Stage] })
}

// digest is a short name for a text.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}
