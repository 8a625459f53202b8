package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"sluice/internal/base/regular"
	"sluice/internal/engine/apply"
	"sluice/internal/system/host"
)

// Facts describes the host, or the network namespace, that this process is in, for who
// asks over an ssh session, nil being none. Where it has no default route, the one that
// the state knew last stands for it.
func Facts(ctx context.Context, state, namespace string, session *host.SSHClient) (host.Facts, error) {
	facts, err := host.Describe(ctx, session)
	facts.Namespace = namespace
	if dir, wrong := apply.Dir(state, namespace); wrong == nil && err == nil && len(facts.DefaultRoute) == 0 {
		facts.DefaultRoute = apply.LastRoute(dir)
	}
	return facts, err
}

// FactsError says that a file does not hold facts that this program can read.
type FactsError struct {
	File    string
	Version int   // of the facts, where it is a later one than this program reads
	Err     error // why they are none, or nil
}

func (e *FactsError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: not the facts of a host: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s: facts of version %d, this sluice reads those up to %d", e.File, e.Version, host.FactsVersion)
}

func (e *FactsError) Unwrap() error { return e.Err }

// ReadFacts reads the facts of a host, written as JSON, from a file. The error is a
// *FactsError where it holds none.
func ReadFacts(file string) (host.Facts, error) {
	data, err := regular.Read(file, 1<<30)
	if err != nil {
		return host.Facts{}, err
	}
	return ParseFacts(file, data)
}

// ParseFacts is ReadFacts of a text, whose name is in its error.
func ParseFacts(name string, data []byte) (facts host.Facts, err error) {
	if err := json.Unmarshal(data, &facts); err != nil {
		return facts, &FactsError{File: name, Err: err}
	}
	if facts.Version > host.FactsVersion {
		return facts, &FactsError{File: name, Version: facts.Version}
	}
	return facts, nil
}
