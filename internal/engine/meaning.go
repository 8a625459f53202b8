package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/internal/base/english"
	"sluice/internal/engine/apply"
	"sluice/internal/prove/query"
)

// meaning compares what was built with what runs, whose names are resolved from the
// sources. It is nil where nothing runs that somebody applied.
func (p *preparation) meaning(ctx context.Context, from *Sources, built *prepared) ([]query.BriefLine, error) {
	old, err := p.host.Running(from)
	var closed *apply.ClosedRunsError
	if errors.Is(err, apply.ErrNoPolicy) || errors.As(err, &closed) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return p.since(ctx, old, built)
}

// InputsChangedError names what is no longer as the running policy was loaded with, so that only
// the lines of the policies were compared.
type InputsChangedError struct {
	Generation int
	Names      []string
}

func (e *InputsChangedError) Error() string {
	verb := "has"
	if len(e.Names) > 1 {
		verb = "have"
	}
	return fmt.Sprintf("%s %s changed since generation %d was loaded: what that opens or closes is not shown", english.List(e.Names), verb, e.Generation)
}

// since compares what was built with what ran. Beside an InputsChangedError, the lines are those
// that the policies themselves make.
func (p *preparation) since(ctx context.Context, old *Subject, built *prepared) ([]query.BriefLine, error) {
	runs := old.Runs
	old.Facts, old.Runs = p.Facts, nil // of both it is asked on the host as it is now
	was, err := old.Meaning(ctx)
	if err != nil {
		return nil, err
	}
	d, err := query.Compare(ctx, was, meaningOf(built.Resolved, built.Expected), p.Sources.Countries)
	if err != nil {
		return nil, err
	}
	lines := d.Brief()
	if runs == nil {
		return lines, nil
	}
	names, lists, known := runs.ChangedInputs(old.Resolved.Inputs)
	if lists {
		names = append(names, "its lists")
	}
	if !known || len(names) == 0 {
		return lines, nil
	}
	if len(lines) == 0 {
		lines = nil // it is not so that nothing changes
	}
	return lines, &InputsChangedError{runs.Number, names}
}

// unsaid is the note on what of a meaning is not known.
func unsaid(err error, words func(error) string) string {
	var inputs *InputsChangedError
	if errors.As(err, &inputs) {
		return inputs.Error()
	}
	return "what it opens and closes is unknown: " + wordsOf(err, words)
}

// longestMeaning is how long an apply looks for what it opens and closes.
const longestMeaning = 5 * time.Second

// ErrMeaningLate says that it took longer.
var ErrMeaningLate = fmt.Errorf("it takes more than %s", longestMeaning)

// meaningMeanwhile looks for what an apply opens and closes while it is loaded. The
// answer is given no later than longestMeaning from now.
func (p *preparation) meaningMeanwhile(ctx context.Context, built *prepared) (answer func() ([]query.BriefLine, error)) {
	old, err := p.host.Running(p.Sources.copies()) // before something else runs
	var closed *apply.ClosedRunsError
	switch {
	case errors.Is(err, apply.ErrNoPolicy) || errors.As(err, &closed):
		return func() ([]query.BriefLine, error) { return nil, nil }
	case err != nil:
		return func() ([]query.BriefLine, error) { return nil, err }
	}
	type found struct {
		lines []query.BriefLine
		err   error
	}
	done := make(chan found, 1)
	bounded, cancel := context.WithTimeoutCause(ctx, longestMeaning, ErrMeaningLate)
	go func() {
		lines, err := p.since(bounded, old, built)
		done <- found{lines, err}
	}()
	return func() ([]query.BriefLine, error) {
		defer cancel()
		select {
		case f := <-done:
			if f.err != nil && bounded.Err() != nil {
				f.err = context.Cause(bounded)
			}
			return f.lines, f.err
		case <-bounded.Done():
			return nil, context.Cause(bounded)
		}
	}
}
