package applybench

import (
	"context"
	"time"

	"sluice/internal/lab/peers"
	"sluice/internal/lab/timed"
)

// daemon is firewalld: its files are rewritten, and it reloads them.
type daemon struct {
	lab   *lab
	d     *peers.Firewalld
	files map[string]string
	start bool
}

func (f *daemon) empty(context.Context) error {
	if f.d != nil {
		if err := f.d.Stop(); err != nil {
			return err
		}
		f.d = nil
	}
	return f.lab.empty()
}

func (f *daemon) prepare(_ context.Context, c change, _, to *state) error {
	f.files, f.start = peers.FirewalldFiles(to.meaning), c.from == nothing
	if f.start {
		return nil
	}
	for path, text := range f.files {
		if err := f.d.File(path, text); err != nil {
			return err
		}
	}
	return nil
}

func (f *daemon) make(ctx context.Context, w *work) (err error) {
	if !f.start {
		pids, err := f.lab.host.Processes()
		if err != nil {
			return err
		}
		if w.watched && w.group != nil {
			for _, pid := range pids {
				if err := w.group.Add(pid); err != nil {
					return err
				}
			}
		}
		w.with = pids
		return w.run(ctx, false, timed.Program{Name: "firewall-cmd", Args: []string{"--reload"}, Env: f.d.Env()})
	}
	begin := time.Now()
	f.d, err = peers.StartFirewalld(ctx, f.lab.host, f.files)
	if err != nil {
		return err
	}
	w.cost.Wall += time.Since(begin)
	pids, err := f.lab.host.Processes()
	if err != nil {
		return err
	}
	w.cost.CPU += timed.TimeOf(pids)
	if w.watched {
		w.cost.Resident = max(w.cost.Resident, timed.PeakOf(pids))
	}
	return nil
}
