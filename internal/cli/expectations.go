package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sluice/internal/cli/command"
	"sluice/internal/engine/build"
	"sluice/internal/language/policy"
	"sluice/internal/program"
	"sluice/internal/prove/check"
	"sluice/internal/prove/expect"
	"sluice/internal/prove/query"
)

// expectations proves those of a policy that is resolved. The error is for what
// keeps them from being proved.
func (p *pipeline) expectations(ctx context.Context) ([]expect.Result, error) {
	if len(p.policy.Expect) == 0 {
		return nil, nil
	}
	meant, err := build.Expected(p.resolved)
	if err != nil {
		return nil, err
	}
	return p.expectationsOf(ctx, meant)
}

// expectationsOf proves them of the program that the policy means.
func (p *pipeline) expectationsOf(ctx context.Context, meant *program.Program) ([]expect.Result, error) {
	if p.geo == nil {
		p.sources(ctx)
	}
	return proved(expect.Judge(query.Compiled{Resolved: p.resolved, Program: meant}, p.geo))
}

// proved adds to what could not be proved what one can do about it.
func proved(results []expect.Result, err error) ([]expect.Result, error) {
	var unprovable *expect.UnprovableError
	if errors.As(err, &unprovable) {
		err = fmt.Errorf("%w\nhint: a test of fewer expectations at a time may be possible; apply --no-expect asks for none", err)
	}
	return results, err
}

// unmet are the expectations that fail.
func unmet(results []expect.Result) (out []expect.Result) {
	for _, r := range results {
		if !r.Holds() {
			out = append(out, r)
		}
	}
	return out
}

// refusedBy is why a policy is not loaded of which expectations fail.
func refusedBy(failing []expect.Result) *command.FoundError {
	var b strings.Builder
	for _, r := range failing {
		fmt.Fprintf(&b, "%s: this does not hold: %s\n", r.Expectation.Pos, r.Expectation.Text)
		fmt.Fprintln(&b, failuresText(r.Failures, "    "))
	}
	b.WriteString("nothing was changed: the policy does not do what it is expected to do\nhint: mend the rules or the expectation; --no-expect applies the policy all the same")
	return command.Found(b.String())
}

// unmetWords is a failing expectation on one line.
func unmetWords(r expect.Result) string {
	var parts []string
	for i, f := range r.Failures {
		if i == 2 {
			parts = append(parts, fmt.Sprintf("and %s more decide otherwise", plural(len(r.Failures)-i, "line")))
			break
		}
		of := "a packet"
		if len(f.Traffic) > 0 {
			of = f.Traffic[0].Service() + " " + f.Traffic[0].Place()
		}
		parts = append(parts, fmt.Sprintf("%s is %s by %s", of, verdictDone[f.Verdict], decidedBy(f)))
	}
	return fmt.Sprintf("%q does not hold: %s", r.Expectation.Text, strings.Join(parts, "; "))
}

// unmetExpectation is the code of findings that are expectations that fail.
const unmetExpectation check.Code = "expectation"

// asUnmet turns expectations that fail into findings.
func asUnmet(p *policy.Policy, results []expect.Result) (out []check.Finding) {
	for _, r := range unmet(results) {
		e := p.Errorf(r.Expectation.Pos, "mend the rules or the expectation; sluice test tells more of the packets", "%s", unmetWords(r))
		f := check.Finding{Code: unmetExpectation, Severity: check.Error, Pos: e.Pos, Message: e.Message, Hint: e.Hint, Line: e.Line}
		for _, by := range r.Failures {
			if by.Pos.Line != 0 {
				f.Related = append(f.Related, check.Related{Pos: by.Pos, Text: by.Text})
			}
		}
		out = append(out, f)
	}
	return out
}
