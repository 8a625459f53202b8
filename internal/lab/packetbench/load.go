package packetbench

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"sluice/internal/backend/nftables/calibration"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/product"
	"sluice/internal/lab/timed"
	"sluice/internal/language/geo"
	"sluice/internal/language/lists"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

// state is a state directory for a run: what policies are resolved with is taken
// from the real one, and nothing goes back there.
type state struct {
	dir  string
	warn func(string)
}

func newState(from string, warn func(string)) (*state, error) {
	dir, err := os.MkdirTemp("", "sluice-packet-")
	if err != nil {
		return nil, err
	}
	s := &state{dir, warn}
	if err := s.take(from); err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

func (s *state) remove() { _ = os.RemoveAll(s.dir) }

// take has the country data, the copies of lists and the calibration of another state
// directory.
func (s *state) take(from string) error {
	if from == "" {
		return nil
	}
	if err := (product.Sluice{State: s.dir}).ShareCountries(from); err != nil {
		return err
	}
	if err := calibration.Copy(from, s.dir); err != nil {
		return err
	}
	copies := filepath.Join(from, "lists")
	if _, err := os.Stat(copies); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return os.CopyFS(filepath.Join(s.dir, "lists"), os.DirFS(copies))
}

// resolve reads a policy for a host. Lists that are old or were never fetched are
// fetched here, since a lab has no network.
func (s *state) resolve(ctx context.Context, p *policy.Policy, facts host.Facts) (*resolve.Resolved, error) {
	return resolve.Resolve(p, resolve.Options{
		Facts: facts,
		Geo:   func() (*geo.Database, error) { return geo.Open(s.dir) },
		Lists: &lists.Store{Dir: filepath.Join(s.dir, "lists"), Context: ctx, Warn: func(err *lists.StaleError) { s.warn(err.Error()) }},
	})
}

// apply is Sluice as a subject: the real command.
func (s *state) apply(binary, file string) Subject {
	return Subject{Name: Sluice, Load: func(ctx context.Context, l *measure.Lab) error {
		_, err := timed.Run(ctx, timed.Program{Name: binary, Args: []string{
			"apply", file, "--no-confirm", "--no-verify", "--no-expect", "--force", "--netns", l.Namespace.Name(), "--state-dir", s.dir,
		}})
		return err
	}}
}
