// Package product runs sluice the way its users do, about the hosts of a laboratory, and
// gives it what it reads there. The demo and the stories play with it; stress, limits and
// what measures packets load by it. What a command takes, package timed tells.
package product

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/lab/testnet"
	"sluice/internal/lab/timed"
	"sluice/internal/language/geo"
)

// Sluice is the program with a state directory of its own.
type Sluice struct {
	Binary string
	State  string // directory
	Dir    string // where it runs; "" is where this program does
}

// Run runs a command about a host, nil being the namespace where this program is. It
// returns what was printed, both streams together, and the exit status. Variables of the
// environment come beside those of this process.
func (s Sluice) Run(ctx context.Context, host *testnet.Namespace, variables []string, args ...string) (output string, status int, err error) {
	if host != nil {
		args = append(args, "--netns", host.Name())
	}
	cmd := exec.CommandContext(ctx, s.Binary, append(args, "--state-dir", s.State)...)
	cmd.Dir = s.Dir
	cmd.Env = append(timed.Environment(), variables...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		return string(out), exit.ExitCode(), nil
	}
	return string(out), 0, err
}

// Must is Run of a command that has to succeed.
func (s Sluice) Must(ctx context.Context, host *testnet.Namespace, args ...string) (string, error) {
	out, status, err := s.Run(ctx, host, nil, args...)
	if err == nil && status != 0 {
		err = fmt.Errorf("sluice %s: exit status %d:\n%s", strings.Join(args, " "), status, out)
	}
	return out, err
}

// ErrNoCountries says that a directory has no country data.
var ErrNoCountries = errors.New("no country data")

// TakeCountries puts the country data of a directory, the CSV files of DB-IP, into the
// state directory.
func (s Sluice) TakeCountries(ctx context.Context, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "dbip-country-ipv?.csv"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("%w in %s\nhint: scripts/fetch-geo-data fetches them", ErrNoCountries, dir)
	}
	args := []string{"geo", "update"}
	for _, f := range files {
		if f, err = filepath.Abs(f); err != nil {
			return err
		}
		args = append(args, "--from", f)
	}
	_, err = s.Must(ctx, nil, args...)
	return err
}

// ShareCountries lets the state directory have the country data of another one, where
// that has some.
func (s Sluice) ShareCountries(from string) error {
	from, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	theirs, own := filepath.Dir(geo.CurrentFile(from)), filepath.Dir(geo.CurrentFile(s.State))
	if _, err := os.Stat(theirs); err != nil {
		return nil //nolint:nilerr // then the built-in ones serve
	}
	return errors.Join(os.MkdirAll(filepath.Dir(own), 0o755), os.Symlink(theirs, own)) //nolint:gosec // for servers of stories to pass through
}

// Take loads an artifact by a backend into a host where there is nothing of Sluice yet.
func Take(ctx context.Context, host *testnet.Namespace, by backend.Backend, artifact backend.Artifact) error {
	return host.Do(func() error {
		state, err := by.Read(ctx, false)
		if err != nil {
			return err
		}
		if !state.Empty() {
			return errors.New("the lab is not empty")
		}
		steps, err := by.Steps(artifact, state)
		if err != nil {
			return err
		}
		for _, s := range steps {
			if err := s.Take(ctx); err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
		}
		return nil
	})
}
