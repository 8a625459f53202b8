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

// broken are the lines of the host's guard that fail and that what runs keeps.
func (h *Host) broken(ctx context.Context, failing []expect.Result) ([]expect.Result, error) {
	if len(failing) == 0 {
		return nil, nil
	}
	judge, err := h.guards(ctx)
	if judge == nil || err != nil {
		return nil, err
	}
	before, err := judge()
	return without(failing, before), err
}

// without are the lines of the guard that fail, except for those that failed before.
func without(failing, before []expect.Result) []expect.Result {
	return slices.DeleteFunc(slices.Clone(failing), func(r expect.Result) bool {
		return slices.ContainsFunc(before, func(b expect.Result) bool { return b.Expectation.Pos == r.Expectation.Pos })
	})
}

// breaks says which line of the host's guard exceptions would break together, "" for none; it is nil
// where there is no guard. A line that the policy breaks without them forbids none.
func (h *Host) breaks(ctx context.Context) (func(list ...apply.Exception) (string, error), error) {
	judge, err := h.guards(ctx)
	if judge == nil || err != nil {
		return nil, err
	}
	before, err := judge()
	if err != nil {
		return nil, err
	}
	return func(list ...apply.Exception) (string, error) {
		after, err := judge(list...)
		if after = without(after, before); err != nil || len(after) == 0 {
			return "", err
		}
		return fmt.Sprintf("%s: this expectation would fail: %s", after[0].Expectation.Pos, after[0].Expectation.Text), nil
	}, nil
}

// forbidden says of exceptions, by their place in the list, which line of the host's guard each
// would break.
func (h *Host) forbidden(ctx context.Context, list []apply.Exception) (map[int]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	breaks, err := h.breaks(ctx)
	if breaks == nil || err != nil {
		return nil, err
	}
	if why, err := breaks(list...); why == "" || err != nil {
		return nil, err
	}
	out := map[int]string{}
	for i, e := range list {
		why, err := breaks(e)
		if err != nil {
			return nil, err
		}
		if why != "" {
			out[i] = why
		}
	}
	return out, nil
}

// ForbiddenError says that the host's guard forbids an exception, or what is added to a set.
type ForbiddenError struct{ Why string }

func (e *ForbiddenError) Error() string { return "the guard of this host forbids it: " + e.Why }

// Hint says what to do about it.
func (e *ForbiddenError) Hint(string) string {
	return "no flag overrides the guard; root may change its file"
}
