package shadow

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"sluice/internal/base/sorting"
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

// untrackedHere is why a packet is not judged that only the candidate would track.
const untrackedHere = "untracked"

// neverTracked matches what connection tracking leaves alone in any case: multicast
// listener discovery and neighbour discovery (noct_valid_new of
// nf_conntrack_proto_icmpv6.c).
func neverTracked() []program.Condition {
	return []program.Condition{
		{Field: program.Protocol, Numbers: []program.NumberRange{{From: 58, To: 58}}},
		{Field: program.ICMPv6Type, Numbers: []program.NumberRange{{From: 130, To: 136}, {From: 143, To: 143}}},
	}
}

// sortStages puts rules of a base chain into the order in which they are asked.
func sortStages(rules []program.Rule) {
	place := map[program.Stage]int{}
	for i, s := range program.Stages {
		place[s.Stage] = i
	}
	sorting.StableBy(rules, func(a, b program.Rule) int { return place[a.Stage] - place[b.Stage] })
}

// digest is a short name for a text.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}
