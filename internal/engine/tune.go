package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"sluice/internal/doctor"
	"sluice/internal/engine/apply"
)

// TableWish is what is asked of the connection table.
type TableWish = doctor.Wish

// TablePlan is how the connection table is and should be, by what the doctor reckons.
type TablePlan struct {
	*doctor.Advice
	// Left is what is left as it is, since it cannot be set from here.
	Left  []string     `json:"left,omitempty"`
	Tuned *apply.Tuned `json:"tuned"` // what commands have set before
}

const tableWindow = time.Second // for which refused packets are counted

// PlanTable says how the connection table should be. It is refused where the policy in force
// says so itself, with its line.
func (h *Host) PlanTable(ctx context.Context, w TableWish) (*TablePlan, error) {
	if w.Expect > mostExpected || w.Max > 1<<28 || w.TimeWait > 30*86400 {
		return nil, fmt.Errorf("the connection table cannot be that large: at most %d connections a second, %d entries and %d seconds", mostExpected, 1<<28, 30*86400)
	}
	return inside(h, func(h *Host) (*TablePlan, error) {
		if err := h.Policed(apply.TableNames); err != nil {
			return nil, err
		}
		tuned, err := h.Tuning()
		if err != nil {
			return nil, err
		}
		a, err := doctor.TableAdvice(ctx, w, tuned.TableSince(), tableWindow)
		if err != nil {
			return nil, err
		}
		if a == nil {
			return nil, errNoTable
		}
		out := &TablePlan{Advice: a, Tuned: tuned}
		settable := a.Settings[:0:0]
		for _, s := range a.Settings {
			if info, err := os.Stat("/proc/sys/" + strings.ReplaceAll(s.Name, ".", "/")); err == nil && info.Mode()&0o200 == 0 {
				out.Left = append(out.Left, fmt.Sprintf("%s = %s: it belongs to the whole machine and cannot be set in a network namespace", s.Name, s.To))
				continue
			}
			settable = append(settable, s)
		}
		a.Settings = settable
		return out, nil
	})
}

const mostExpected = 1_000_000 // connections a second

// Tune is apply.Host.Tune in the host's network namespace, with the memory that a connection
// table comes to take.
func (h *Host) Tune(ctx context.Context, in apply.Tuning) (*apply.Tuned, error) {
	if in.Confirm < 0 {
		return nil, errors.New("the time for confirmation is negative")
	}
	return inside(h, func(h *Host) (*apply.Tuned, error) {
		var entries, buckets uint64
		for _, s := range in.Settings {
			n, _ := strconv.ParseUint(s.Value, 10, 64) // what is not a number is refused
			switch strings.TrimPrefix(s.Name, apply.TableNames) {
			case "max":
				entries = n
			case "buckets":
				buckets = n
			}
		}
		in.Memory = doctor.TableMemory(entries, buckets)
		return h.Host.Tune(ctx, in)
	})
}

// Untune is apply.Host.Untune in the host's network namespace.
func (h *Host) Untune(ctx context.Context, u apply.Untuning) (*apply.Tuned, error) {
	return inside(h, func(h *Host) (*apply.Tuned, error) { return h.Host.Untune(ctx, u) })
}
