package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/engine/apply"
	"sluice/internal/language/policy"
	"sluice/internal/program"
	"sluice/internal/prove/check"
	"sluice/internal/prove/expect"
	"sluice/internal/prove/explain"
	"sluice/internal/prove/query"
	"sluice/internal/prove/reach"
	"sluice/internal/system/host"
)

// Running is the policy that runs here, as it was when it was applied. Its files are
// looked for where it was applied. The error is apply.ErrNoPolicy, an
// *apply.ClosedRunsError, or fs.ErrPermission.
func (h *Host) Running(from *Sources) (*Subject, error) {
	g, texts, err := h.RunningPolicy()
	if err != nil {
		return nil, err
	}
	p, err := policy.LoadTexts(g.Policy, texts)
	if err != nil {
		return nil, fmt.Errorf("read the policy of generation %d: %w", g.Number, err)
	}
	p.Dir = g.Dir
	if err := except(p, g.Exceptions); err != nil {
		return nil, fmt.Errorf("read the exceptions of generation %d: %w", g.Number, err)
	}
	return &Subject{Policy: p, Runs: g, Sources: from}, nil
}

// ClosedAskedError says that a question is about what runs, which nobody applied.
type ClosedAskedError struct{ *apply.ClosedRunsError }

// Unwrap is for the hint of the closed policy.
func (e *ClosedAskedError) Unwrap() error { return e.ClosedRunsError }

// asked is the policy that runs here, to be asked about.
func (h *Host) asked(ctx context.Context, from *Sources) (*Subject, error) {
	s, err := h.Running(from)
	if closed := (*apply.ClosedRunsError)(nil); errors.As(err, &closed) {
		return nil, &ClosedAskedError{closed}
	}
	if err != nil {
		return nil, err
	}
	s.Facts, err = Facts(ctx, h.State, h.Namespace, h.Session)
	return s, err
}

// Querying is which packets a policy is asked about.
type Querying struct {
	*Subject // nil: what runs here
	query.Words
	Verdicts  []program.Verdict        // that are asked for; none: all
	Elsewhere bool                     // the policy is for another host than this one
	Unban     func(what string) string // as in explain.Words
}

// Query says what a policy does with all packets that fit the words. Of an address or a range
// that is named, it notes the bans that hold here.
func (h *Host) Query(ctx context.Context, q Querying) (*Queried, error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*Queried, error) { return h.Query(ctx, q) })
	}
	if q.Subject == nil {
		from := h.sources()
		from.Offline = true
		var err error
		if q.Subject, err = h.asked(ctx, from); err != nil {
			return nil, err
		}
	}
	out, err := q.Subject.Query(ctx, q.Words, q.Verdicts)
	if err != nil || q.Elsewhere {
		return out, tooMuch(err)
	}
	var named addrset.Builder
	for _, who := range []string{q.From, q.To} {
		if r, err := addrset.ParseRange(who); err == nil { // no name of a set, a zone or a country
			named.AddRange(r)
		}
	}
	if set := named.Set(); !set.IsEmpty() {
		out.Notes = append(out.Notes, h.notesOnBans(ctx, q.Subject, set, explain.Words{Unban: q.Unban}.Note)...)
	}
	return out, nil
}

func tooMuch(err error) error {
	if errors.Is(err, reach.ErrTooLarge) {
		return &TooMuchError{err}
	}
	return err
}

// TooMuchError says that too much was asked about at once.
type TooMuchError struct{ Err error }

func (e *TooMuchError) Error() string { return e.Err.Error() }

// Unwrap is for errors.Is.
func (e *TooMuchError) Unwrap() error { return e.Err }

// Queried is what a policy does with all packets that were asked about.
type Queried struct {
	Policy  string         `json:"policy"`
	Asked   string         `json:"asked"`
	Classes []query.Answer `json:"classes"`
	Notes   []string       `json:"notes,omitempty"` // what the answers leave out
}

// Query says what the policy does with all packets that fit the words. Verdicts, where
// there are any, are those that are asked for.
func (s *Subject) Query(ctx context.Context, w query.Words, verdicts []program.Verdict) (*Queried, error) {
	c, err := s.Meaning(ctx)
	if err != nil {
		return nil, err
	}
	answers, err := query.Query(c, w, verdicts, s.Sources.Countries)
	if err != nil {
		return nil, err
	}
	return &Queried{s.Policy.File, w.String(), answers, query.Notes(c)}, nil
}

// Compare says what the change from one policy to another opens and closes on a host with
// these facts. Exceptions of the one that runs are before the rules of the other too, as
// an apply has it.
func Compare(ctx context.Context, from *Sources, facts host.Facts, read func(name string) (*Subject, error), old, next string) (*query.Diff, error) {
	var sides [2]*Subject
	var hold []apply.Exception
	for i, name := range []string{old, next} {
		var err error
		if sides[i], err = read(name); err != nil {
			return nil, err
		}
		sides[i].Facts = facts
		if g := sides[i].Runs; g != nil {
			hold = slices.Concat(g.Exceptions, g.LeftOut)
		}
	}
	var means [2]query.Compiled
	for i, s := range sides {
		if s.Runs == nil {
			if err := s.except(ctx, hold); err != nil {
				return nil, err
			}
		}
		var err error
		if means[i], err = s.Meaning(ctx); err != nil {
			return nil, err
		}
	}
	return query.Compare(ctx, means[0], means[1], from.Countries)
}

// Test proves the expectations of the policy, and those of the guard behind them.
func (s *Subject) Test(ctx context.Context) ([]expect.Result, error) {
	c, err := s.Meaning(ctx)
	if err != nil {
		return nil, err
	}
	out, err := expect.Judge(c, s.Sources.Countries)
	if s.Guard == nil || err != nil {
		return out, err
	}
	by, err := s.Sources.Resolve(ctx, s.Guard, s.Facts)
	if err != nil {
		return nil, err
	}
	guarded, err := expect.JudgeGuard(c, by, s.Sources.Countries)
	return append(out, guarded...), err
}

// Codes of findings that are not about what a policy says.
const (
	BadPolicy        check.Code = "policy"      // an error of the text, or of what it names
	UnmetExpectation check.Code = "expectation" // an expectation that fails
	OldWord          check.Code = "old-word"    // a word that is called otherwise now
)

// Check finds what is wrong with the policy on its host. The error is for what keeps it
// from being looked at.
func (s *Subject) Check(ctx context.Context) ([]check.Finding, error) {
	if err := s.Resolve(ctx); err != nil {
		return Findings(err)
	}
	return s.withExpectations(ctx, append(OldWords(s.Policy, s.Guard), check.Run(s.Resolved, s.Facts)...))
}

// Lint is Check with what could be better.
func (s *Subject) Lint(ctx context.Context) (check.Report, error) {
	if err := s.Resolve(ctx); err != nil {
		findings, err := Findings(err)
		return check.Report{Findings: findings}, err
	}
	report := check.Lint(s.Resolved, s.Facts, check.Options{
		Open: func(name string) (io.ReadCloser, error) { return s.Policy.Open(name) },
	})
	if s.Runs != nil {
		for _, f := range s.Runs.Broken {
			report.Findings = append(report.Findings, check.Finding{Code: BadPolicy, Severity: check.Warning, Pos: policy.Pos{File: f.File}, Message: "the file " + f.Instead(), Hint: f.Errors})
		}
	}
	var err error
	report.Findings, err = s.withExpectations(ctx, append(OldWords(s.Policy, s.Guard), report.Findings...))
	return report, err
}

// withExpectations adds the expectations that fail to what was found.
func (s *Subject) withExpectations(ctx context.Context, found []check.Finding) ([]check.Finding, error) {
	for _, f := range found {
		if f.Severity == check.Error { // such a policy may have no program
			return found, nil
		}
	}
	if len(s.Policy.Expect) == 0 && s.Guard == nil {
		return found, nil
	}
	expected, err := expectedOf(s.Resolved)
	var failing, unguarded []expect.Result
	if err == nil && len(s.Policy.Expect) > 0 {
		failing, err = s.Sources.unmet(ctx, s.Resolved, expected)
	}
	if err == nil {
		unguarded, err = s.Sources.unguarded(ctx, s.Guard, s.Resolved, expected)
	}
	if err != nil {
		wrong, err := Findings(err)
		return append(found, wrong...), err
	}
	for i, r := range slices.Concat(failing, unguarded) {
		of := s.Policy
		if i >= len(failing) {
			of = s.Guard
		}
		e := of.Errorf(r.Expectation.Pos, "fix the rules or the expectation", "%s", r.Unmet())
		f := check.Finding{Code: UnmetExpectation, Severity: check.Error, Pos: e.Pos, Message: e.Message, Hint: e.Hint, Line: e.Line}
		for _, by := range r.Failures {
			if by.Pos.Line != 0 {
				f.Related = append(f.Related, check.Related{Pos: by.Pos, Text: by.Text})
			}
		}
		found = append(found, f)
	}
	return found, nil
}

// OldWords are the words of a policy and its guard, or nil, that are called otherwise now.
func OldWords(p, guard *policy.Policy) (out []check.Finding) {
	for _, p := range []*policy.Policy{p, guard} {
		if p != nil {
			out = append(out, Warnings(slices.Clone(p.OldWords).Sorted(slices.Concat([]string{p.File}, p.Includes)))...)
		}
	}
	return out
}

// Warnings turns what a file warns of into findings.
func Warnings(old policy.Errors) (out []check.Finding) {
	for _, e := range old {
		out = append(out, check.Finding{Code: OldWord, Severity: check.Warning, Pos: e.Pos, Message: e.Message, Hint: e.Hint, Line: e.Line})
	}
	return out
}

// Findings turns the errors of a policy into findings; other errors stay.
func Findings(err error) ([]check.Finding, error) {
	var errs policy.Errors
	if !errors.As(err, &errs) {
		var one *policy.Error
		if !errors.As(err, &one) {
			return nil, err
		}
		errs = policy.Errors{one}
	}
	var out []check.Finding
	for _, e := range errs {
		out = append(out, check.Finding{Code: BadPolicy, Severity: check.Error, Pos: e.Pos, Message: e.Message, Hint: e.Hint, Line: e.Line, Remedy: e.Remedy})
	}
	return out, nil
}
