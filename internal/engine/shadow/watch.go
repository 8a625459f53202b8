package shadow

import (
	"context"
	"fmt"
	"time"
)

// readShare is how much of the time reading the counters may take: one part of so many.
const readShare = 10

// Watch stays with a shadow until its life is over or ctx ends it early, and reports what
// it has counted. Where somebody looks on, they are shown each second what was counted up
// to then, or less often where reading takes long.
func (r *Running) Watch(ctx context.Context, life time.Duration, names Names, look func(*Report)) (*Report, error) {
	since := time.Now()
	early, err := r.stay(ctx, life, func(ctx context.Context) error {
		if look == nil {
			return nil
		}
		report, err := r.report(ctx, names, since)
		if err == nil {
			look(report)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	// What ended the wait must not end the last reading.
	report, err := r.report(context.WithoutCancel(ctx), names, since)
	if err != nil {
		return nil, err
	}
	report.Early = early
	return report, nil
}

// stay waits, and looks in between.
func (r *Running) stay(ctx context.Context, life time.Duration, look func(context.Context) error) (early bool, err error) {
	end := time.NewTimer(life)
	defer end.Stop()
	next := time.NewTimer(time.Second)
	defer next.Stop()
	for {
		select {
		case <-end.C:
			return false, nil
		case <-ctx.Done():
			return true, nil
		case <-next.C:
		}
		if err := r.There(); err != nil {
			return false, err
		}
		began := time.Now()
		if err := look(ctx); err != nil {
			if ctx.Err() != nil {
				return true, nil
			}
			return false, err
		}
		next.Reset(max(time.Second, readShare*time.Since(began)))
	}
}

func (r *Running) report(ctx context.Context, names Names, since time.Time) (*Report, error) {
	counts, err := r.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read what the shadow has counted: %w", err)
	}
	out := r.legend.Report(counts, names)
	out.Since, out.Until = since, time.Now()
	return out, nil
}
