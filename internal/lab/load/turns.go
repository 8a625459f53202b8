package load

import (
	"context"
	"fmt"
	"time"

	"sluice/internal/lab/stats"
)

const (
	roundTime  = 5 * time.Second
	fewRounds  = 8
	manyRounds = 40
)

// rounds says into how many parts a time is cut.
func rounds(total time.Duration) (n int, each time.Duration) {
	n = min(max(int(total/roundTime), fewRounds), manyRounds)
	return n, total / time.Duration(n)
}

// Turns measures two loads in turn, first A then B, next B then A, each for its Options.For
// in all, so that what slows the machine for a while slows both. Options.For of
// the two has to be the same. Each result has an interval a round. Done is told how
// many of how many rounds are over, and what the last one found. When the context
// ends first, the result has the whole pairs of rounds.
func Turns(ctx context.Context, a, b Options, done func(over, of int, last *Result)) (ra, rb *Result, err error) {
	if err := a.fill(); err != nil {
		return nil, nil, err
	}
	n, each := rounds(a.For)
	var found [2][]*Result
	for i := range n {
		var pair [2]*Result
		for turn := range 2 {
			side := (turn + i) % 2
			o := a
			if side == 1 {
				o = b
			}
			o.For, o.Every, o.Progress = each, each, nil
			r, err := Run(ctx, o)
			switch {
			case err != nil && ctx.Err() == nil:
				return nil, nil, fmt.Errorf("%s: %w", o.URL, err)
			case err != nil || r.Interrupted:
				if len(found[0]) == 0 {
					return nil, nil, context.Cause(ctx)
				}
				return together(found[0]), together(found[1]), nil
			}
			pair[side] = r
			if done != nil {
				done(2*i+turn+1, 2*n, r)
			}
		}
		found[0], found[1] = append(found[0], pair[0]), append(found[1], pair[1])
	}
	return together(found[0]), together(found[1]), nil
}

// together makes one result of rounds, an interval each.
func together(rounds []*Result) *Result {
	first := rounds[0]
	out := &Result{
		Options: first.Options, Address: first.Address, Start: first.Start, Correction: first.Correction,
		Errors: map[Kind]uint64{}, Statuses: map[int]uint64{},
	}
	total := out.Options.newCell()
	latency := dense(out.Options.span())
	for _, r := range rounds {
		i := Interval{
			From: out.Took, To: out.Took + r.Options.Every, Answered: r.Answered - r.Late, Errors: r.Errors, Sent: r.Sent, Received: r.Received,
			Latency: PercentilesOf(r.Latency), Raw: PercentilesOf(r.Raw), Connect: PercentilesOf(r.Connect),
		}
		if n := len(r.Intervals); n > 0 {
			i.Open = r.Intervals[n-1].Open
		}
		out.Intervals = append(out.Intervals, i)
		out.Took = i.To
		out.Answered += r.Answered
		out.Late += r.Late
		out.Sent += r.Sent
		out.Received += r.Received
		out.Unsent += r.Unsent
		out.Processor += r.Processor
		for k, n := range r.Errors {
			out.Errors[k] += n
		}
		for s, n := range r.Statuses {
			out.Statuses[s] += n
		}
		total.raw.Merge(r.Raw)
		total.connect.Merge(r.Connect)
		total.shake.Merge(r.Handshake)
		latency.Merge(r.Latency)
		if r.Lateness != nil {
			total.lateness.Merge(r.Lateness)
		}
	}
	out.Raw, out.Latency, out.Connect, out.Handshake, out.Lateness = total.raw, latency, total.connect, total.shake, total.lateness
	if out.Correction == ByInterval {
		out.Expected = time.Duration(out.Raw.ValueAtPercentile(50))
	}
	out.Options.For = out.Took
	return out
}

// noise is the probability at which two halves of the same side's rounds are
// called different.
const noise = 0.01

// Noisy says whether the rounds of one load differ among themselves: every other
// one of them against the rest.
func (r *Result) Noisy() bool {
	halves := func(of func(Interval) float64) bool {
		var half [2]stats.Series
		for n, i := range r.Intervals {
			half[n%2] = append(half[n%2], of(i))
		}
		return len(half[1]) > 0 && stats.Compare(half[0], half[1]).P < noise
	}
	return halves(Interval.Rate) || halves(func(i Interval) float64 { return milliseconds(i.Latency.P50) })
}
