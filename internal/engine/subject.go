package engine

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"sluice/internal/engine/apply"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/prove/query"
	"sluice/internal/system/host"
)

// StandardInput is the name of a policy that is read from there.
const StandardInput = "-"

// Load reads a policy from a file, or from standard input for StandardInput.
func Load(standardInput io.Reader, file string) (*policy.Policy, error) {
	if file != StandardInput {
		return policy.Load(file)
	}
	data, err := io.ReadAll(standardInput)
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	return policy.LoadData(StandardInput, data)
}

// Subject is a policy that something is asked about.
type Subject struct {
	Policy   *policy.Policy
	Guard    *policy.Policy    // what its host expects of every policy; nil: nothing
	Runs     *apply.Generation // of which the policy is; nil: it is a file's
	Facts    host.Facts        // of the host that it is for
	Sources  *Sources
	Resolved *resolve.Resolved // after Resolve
}

// Resolve resolves the names of the policy. Where what the running policy takes from
// the host is no more what it was, so that what runs may be another thing than what is
// answered, that is a warning.
func (s *Subject) Resolve(ctx context.Context) error {
	var err error
	if s.Resolved, err = s.Sources.Resolve(ctx, s.Policy, s.Facts); err != nil || s.Runs == nil {
		return err
	}
	names, _, known := s.Runs.ChangedInputs(s.Resolved.Inputs)
	if known && len(names) > 0 {
		s.Sources.warn(fmt.Sprintf("since generation %d was loaded, there is another %s: this answers with what is there now", s.Runs.Number, strings.Join(names, ", ")))
	}
	return nil
}

// Meaning is what the policy means for its host: its program, with what no optimizer
// has touched that it need not have. It resolves the names first.
func (s *Subject) Meaning(ctx context.Context) (query.Compiled, error) {
	if err := s.Resolve(ctx); err != nil {
		return query.Compiled{}, err
	}
	expected, err := expectedOf(s.Resolved)
	if err != nil {
		return query.Compiled{}, err
	}
	c := meaningOf(s.Resolved, expected)
	c.Stop = ctx.Done()
	return c, nil
}

// meaningOf is what a policy means now, by its program as it is expected: what is asked of
// rules that end is asked as of this moment.
func meaningOf(r *resolve.Resolved, expected *program.Program) query.Compiled {
	return query.Compiled{Resolved: r, Program: expected.At(time.Now())}
}
