package stories

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"sluice/internal/doctor"
	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/conntrack"
)

// diagnoseFull has "sluice doctor", which knows of no story, look at a host as soon as its
// connection table has so many entries. The result waits for it, and is an error where the
// doctor names anything else first.
func (s *Stage) diagnoseFull(ctx context.Context, host *testnet.Namespace, entries int) (result func() ([]string, error)) {
	var evidence []string
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		for full := false; !full && err == nil; {
			err = host.Do(func() error {
				n, err := conntrack.Count()
				full = int(n) >= entries //nolint:gosec // below 2^31
				return err
			})
			select {
			case <-ctx.Done():
				err = ctx.Err()
			case <-time.After(100 * time.Millisecond):
			}
		}
		if err == nil {
			evidence, err = s.diagnose(ctx, host, "table-full")
		}
	}()
	return func() ([]string, error) {
		<-done
		return evidence, err
	}
}

// diagnose has the doctor look at a host, and holds what it names first to the cause.
func (s *Stage) diagnose(ctx context.Context, host *testnet.Namespace, cause string) ([]string, error) {
	return diagnosis(cause, func() (string, error) {
		out, _, err := s.Sluice(ctx, host, "doctor", "--json")
		return out, err
	})
}

// diagnosis is what the doctor says, whom ask has asked.
func diagnosis(cause string, ask func() (string, error)) ([]string, error) {
	from := time.Now()
	out, err := ask()
	if err != nil {
		return nil, err
	}
	took := time.Since(from)
	var report doctor.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		return nil, fmt.Errorf("read what sluice doctor says: %w\n%s", err, out)
	}
	if len(report.Findings) == 0 || report.Findings[0].Check != cause {
		return nil, fmt.Errorf("sluice doctor does not name %s first:\n%s", cause, out)
	}
	f := report.Findings[0]
	lines := []string{fmt.Sprintf("sluice doctor, in %.1f s: %s: %s: %s", took.Seconds(), f.Severity, f.Check, f.Text)}
	if len(f.Fix) > 0 {
		lines = append(lines, "its fix: "+f.Fix[0])
	}
	return lines, nil
}
