package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"path/filepath"

	"sluice/internal/base/english"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/prove/expect"
)

// GuardFile is where the expectations are that the host, or a network namespace of
// ip-netns(8), has of every policy.
func GuardFile(namespace string) string {
	if namespace == "" {
		return "/etc/sluice/guard.yaml"
	}
	return filepath.Join("/etc/netns", namespace, "sluice", "guard.yaml")
}

// ReadGuard reads a guard; nil where there is none.
func ReadGuard(file string) (*policy.Policy, error) {
	p, err := policy.LoadGuard(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return p, err
}

// GuardError says that a policy does not do what the host expects of every policy, so that
// it was not loaded.
type GuardError struct {
	File    string
	Failing []expect.Result
}

func (e *GuardError) Error() string {
	return "the policy breaks " + english.Plural(len(e.Failing), "line") + " of " + e.File
}

// unguarded proves the lines of a guard, nil being none, and gives those that fail.
func (s *Sources) unguarded(ctx context.Context, guard *policy.Policy, r *resolve.Resolved, expected *program.Program) ([]expect.Result, error) {
	if guard == nil {
		return nil, nil
	}
	by, err := s.Resolve(ctx, guard, r.Facts)
	if err != nil {
		return nil, err
	}
	if r, expected, err = unexcepted(r, expected); err != nil {
		return nil, err
	}
	return failing(expect.JudgeGuard(meaningOf(r, expected), by, s.Countries))
}

// readGuard reads the guard of the host, and what decides what it says.
func (p *preparation) readGuard(ctx context.Context, file string) error {
	var err error
	if p.guard, err = ReadGuard(file); p.guard == nil || err != nil {
		return err
	}
	if p.guarded, err = resolve.InputsOf(p.guard, p.Sources.options(ctx, p.Facts)); err != nil {
		return err
	}
	sum := sha256.Sum256(p.guard.Text(file))
	p.guarded[file] = hex.EncodeToString(sum[:])
	return nil
}
