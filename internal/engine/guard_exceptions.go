package engine

import (
	"context"
	"fmt"
	"slices"

	"sluice/internal/engine/apply"
	"sluice/internal/language/resolve"
	"sluice/internal/prove/expect"
)

// guards proves the lines of the host's guard of the running policy with exceptions. It is nil
// where there is no guard.
func (h *Host) guards(ctx context.Context) (func(list ...apply.Exception) ([]expect.Result, error), error) {
	guard, err := ReadGuard(h.Guard)
	if guard == nil || err != nil {
		return nil, err
	}
	var by *resolve.Resolved
	from := h.sources()
	from.Offline = true
	return func(list ...apply.Exception) ([]expect.Result, error) {
		running, err := h.Running(nil) // except changes its policy
		if err == nil {
			err = except(running.Policy, list)
		}
		if err != nil {
			return nil, err
		}
		r, err := h.runningResolved(ctx, running)
		if err != nil {
			return nil, err
		}
		expected, err := expectedOf(r)
		if err != nil {
			return nil, err
		}
		if by == nil {
			if by, err = from.Resolve(ctx, guard, r.Facts); err != nil {
				return nil, err
			}
		}
		return failing(expect.JudgeGuard(meaningOf(r, expected), by, from.Countries))
	}, nil
}

// forbidden says of exceptions, by their place in the list, which line of the host's guard each
// would break. A line that the policy breaks without them forbids none.
func (h *Host) forbidden(ctx context.Context, list []apply.Exception) (map[int]string, error) {
	judge, err := h.guards(ctx)
	if judge == nil || err != nil || len(list) == 0 {
		return nil, err
	}
	before, err := judge()
	if err != nil {
		return nil, err
	}
	broken := func(list ...apply.Exception) (string, error) {
		after, err := judge(list...)
		if err != nil {
			return "", err
		}
		for _, r := range after {
			if !slices.ContainsFunc(before, func(b expect.Result) bool { return b.Expectation.Pos == r.Expectation.Pos }) {
				return fmt.Sprintf("%s: this expectation would fail: %s", r.Expectation.Pos, r.Expectation.Text), nil
			}
		}
		return "", nil
	}
	if why, err := broken(list...); why == "" || err != nil {
		return nil, err
	}
	out := map[int]string{}
	for i, e := range list {
		why, err := broken(e)
		if err != nil {
			return nil, err
		}
		if why != "" {
			out[i] = why
		}
	}
	return out, nil
}

// ForbiddenError says that the host's guard forbids an exception.
type ForbiddenError struct{ Why string }

func (e *ForbiddenError) Error() string { return "the guard of this host forbids it: " + e.Why }

// Hint says what to do about it.
func (e *ForbiddenError) Hint(string) string {
	return "no flag overrides the guard; root may change its file"
}
