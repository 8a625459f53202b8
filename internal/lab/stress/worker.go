package stress

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/language/policy"
	"sluice/internal/system/host"
	"sluice/internal/system/kernel/memgroup"
	"sluice/internal/system/kernel/nft"
)

// worker does what the hand is told. Apart from what the kernel can do, which
// commands remember on disk, it keeps nothing from one order to the next.
type worker struct {
	can    backend.Capabilities
	leaked []*os.File
}

func (w *worker) do(ctx context.Context, o order) (a answer, err error) {
	if o.Group != "" {
		back, err := memgroup.Join(o.Group)
		if err != nil {
			return a, err
		}
		defer back()
	}
	h := &apply.Host{
		Dir: o.State, Backend: nftables.New(), Version: "stress",
		Note: func(text string) { a.Notes = append(a.Notes, text) },
	}
	h.By, h.Session = apply.Me()
	if o.Squeeze > 0 {
		h.Progress = func(p apply.Progress) {
			if !strings.HasPrefix(p.Name, "set ") {
				return
			}
			if err := memgroup.Open(o.Within).LimitMore(o.Squeeze); err != nil {
				a.Notes = append(a.Notes, err.Error())
			}
		}
	}
	switch o.Do {
	case "facts":
		facts, err := host.Describe(ctx, h.Session)
		a.Facts = &facts
		return a, err
	case "apply":
		in, err := w.prepare(ctx, h, o)
		if err != nil {
			return a, err
		}
		a.Outcome, err = h.Apply(ctx, in, apply.Options{Keep: true, Verify: true})
		return a, err
	case "remove":
		a.Outcome, err = h.Remove(ctx)
		return a, err
	case "status":
		a.Status, err = h.Status(ctx, true)
		return a, err
	case "run":
		cmd := exec.CommandContext(ctx, o.Args[0], o.Args[1:]...)
		var out, problems bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &problems
		if err := cmd.Run(); err != nil {
			return a, fmt.Errorf("%s: %w\n%s%s", strings.Join(o.Args, " "), err, out.String(), problems.String())
		}
		a.Text = out.String()
		return a, nil
	case "text":
		in, err := w.prepare(ctx, h, o)
		if err == nil {
			a.Text = in.Artifact.Text()
		}
		return a, err
	case "leak":
		f, err := os.Open(os.DevNull)
		w.leaked = append(w.leaked, f)
		if err == nil {
			err = nft.Run(ctx, leakedTable())
		}
		return a, err
	}
	return a, fmt.Errorf("no such order: %q", o.Do)
}

// leakedTable is what an apply could leave behind: a table with a set.
func leakedTable() string {
	var b strings.Builder
	b.WriteString("table inet sluice_leak { set s { type ipv4_addr; elements = { ")
	for i := range 20_000 {
		fmt.Fprintf(&b, "10.0.%d.%d, ", i>>8, i&255)
	}
	return b.String() + "}; }; }\n"
}

// prepare takes a policy the way that "sluice apply" takes it.
func (w *worker) prepare(ctx context.Context, h *apply.Host, o order) (in apply.Input, err error) {
	if w.can == nil {
		w.can = nftables.New().Capabilities(ctx)
	}
	facts, err := host.Describe(ctx, h.Session)
	if err != nil {
		return in, err
	}
	h.Pristine(&facts)
	p, err := policy.Load(o.File)
	if err != nil {
		return in, err
	}
	built, err := engine.Build(ctx, p, facts, w.can, engine.Options{
		Backend: h.Backend, Sources: &engine.Sources{State: o.State, Data: o.Data},
	})
	if err != nil {
		return in, err
	}
	settings, _ := apply.Settings(built.Program)
	return apply.Input{
		Policy: o.File, Files: []apply.Source{apply.SourceOf(o.File, p.Text(o.File))}, Program: built.Program, Expected: built.Expected, Artifact: built.Artifact, Facts: facts,
		Sysctls: settings, Memory: apply.FreeMemory(),
	}, nil
}
