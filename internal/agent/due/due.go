// Package due has done what is done from time to time: the lists of a running policy are
// asked for, country data are updated and taken into the rules. What failed is tried again
// after pauses that grow, and what was in use stays meanwhile. Callers: the agent.
package due

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"time"

	"sluice/internal/agent/alert"
	"sluice/internal/agent/api"
	"sluice/internal/agent/work"
	"sluice/internal/base/english"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/engine/schedule"
	"sluice/internal/language/geo"
)

// Host is a network namespace as the commands have it, and how a process of its own does
// an operation there.
type Host struct {
	*engine.Host
	Work func(ctx context.Context, o work.Order, told func(api.Line)) (json.RawMessage, error)
	// Alert reports what cannot be had, once, and of what can be had again.
	Alert func(apply.Alert)

	look   time.Duration   // 0: lookTime
	spread schedule.Spread // nil: random
}

// lookTime is how often it is looked what is due: a policy may have been applied by then,
// or the clock set, which no timer notices.
const lookTime = 30 * time.Second

// keeper keeps the plan of a folder.
type keeper struct {
	dir    string
	does   string                              // what its lock is for; "": it has none
	tasks  func() (map[string]meant, bool)     // what there is to do; false: nothing now
	do     func(context.Context, string) error // one of them
	note   func(string)
	alert  func(event, text, set string)
	told   func(name string) string // how it is told of
	set    func(name string) string // whose list it is; "" of country data
	now    func() time.Time
	look   time.Duration
	spread schedule.Spread

	plan    schedule.Plan
	release func()
	trouble string // what was told last of why it cannot keep it
}

// meant is when a task was done last, and how often it is to be done.
type meant struct {
	done  time.Time
	every time.Duration
}

func (h *Host) keeper(dir, does string) *keeper {
	k := &keeper{dir: dir, does: does, now: time.Now, look: cmp.Or(h.look, lookTime), spread: h.spread, note: h.Note}
	if k.spread == nil {
		k.spread = random
	}
	if k.note == nil {
		k.note = func(string) {}
	}
	k.set = func(string) string { return "" }
	k.alert = func(event, text, set string) {
		h.Alert(apply.Alert{Time: k.now().Truncate(time.Millisecond), Event: event, Namespace: h.Namespace, Text: text, Set: set})
	}
	return k
}

func random(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return rand.N(most) //nolint:gosec,forbidigo // for hosts not to ask together
}

// run does what is due until the context ends.
func (k *keeper) run(ctx context.Context) {
	defer func() {
		if k.release != nil {
			k.release()
		}
	}()
	for ctx.Err() == nil {
		again := k.step(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// step does what is due at this moment, and says when to look again.
func (k *keeper) step(ctx context.Context) time.Duration {
	if k.plan == nil && k.does == "" {
		k.plan = schedule.Read(k.dir)
	}
	if k.plan == nil {
		release, err := k.take()
		if err != nil {
			if taken := (*apply.TakenError)(nil); !errors.As(err, &taken) {
				k.fails(err)
			}
			return k.look
		}
		k.release, k.plan = release, schedule.Read(k.dir)
	}
	tasks, now := k.tasks()
	if !now {
		return k.look
	}
	was := maps.Clone(k.plan)
	maps.DeleteFunc(k.plan, func(name string, _ schedule.Task) bool { _, there := tasks[name]; return !there })
	var next string
	for name, m := range tasks {
		k.plan[name] = k.plan[name].Meet(m.done, m.every, k.now(), k.spread)
		if first := k.plan[name].Next; next == "" || first.Before(k.plan[next].Next) {
			next = name
		}
	}
	wait := k.look
	if next != "" {
		wait = min(wait, k.plan[next].Next.Sub(k.now()))
	}
	if next != "" && wait <= 0 {
		k.done(ctx, next, k.do(ctx, next))
		wait = 0
	}
	if !maps.Equal(was, k.plan) {
		k.fails(k.plan.Write(k.dir))
	}
	return wait
}

func (k *keeper) take() (release func(), err error) {
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return nil, err
	}
	return apply.Take(schedule.Lock(k.dir), k.does)
}

// done notes what came of a task, and reports what is new.
func (k *keeper) done(ctx context.Context, name string, err error) {
	task := k.plan[name]
	switch {
	case ctx.Err() != nil:
	case err == nil:
		if task.Failed > 0 {
			k.alert(alert.Renewed, k.told(name)+" could be had again", k.set(name))
		}
		k.plan[name] = schedule.Task{}.Meet(k.now(), task.Every, k.now(), k.spread)
	default:
		next := task.Fail(err.Error(), k.now(), k.spread)
		text := fmt.Sprintf("%s: %v\n  what was in use stays; it is tried again at %s", k.told(name), err, next.Next.Local().Format(time.DateTime))
		switch {
		case task.Failed == 0:
			k.alert(alert.Stale, text, k.set(name))
		case task.Error != next.Error:
			k.note(text)
		}
		k.plan[name] = next
	}
}

// fails tells once of what keeps it from its work.
func (k *keeper) fails(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != k.trouble {
		k.note(text)
	}
	k.trouble = text
}

// Lists has the lists of the running policy asked for, and where countries says so the
// country data in use taken into its rules, until the context ends.
func (h *Host) Lists(ctx context.Context, lists, countries bool) {
	if !lists && !countries {
		return
	}
	does := "refreshes the lists"
	if !lists {
		does = "" // somebody else may
	}
	k := h.keeper(h.Dir, does)
	of := outside{Host: h, lists: lists, countries: countries}
	k.tasks = func() (map[string]meant, bool) {
		tasks, now, err := of.tasks()
		k.fails(err)
		return tasks, now
	}
	k.do = func(ctx context.Context, name string) error {
		in := api.RefreshRequest{Countries: true}
		if name != schedule.Countries {
			in = api.RefreshRequest{Sets: []string{of.sets[name]}}
		}
		err := h.refresh(ctx, in)
		if err == nil {
			of.what = nil // the rules may be the same, made of something else
		}
		return err
	}
	k.told = func(name string) string {
		if name == schedule.Countries {
			return "the new country data in the rules"
		}
		return "the list of set " + of.sets[name]
	}
	k.set = func(name string) string { return of.sets[name] }
	k.run(ctx)
}

// outside is what a policy takes from elsewhere, read again when another one runs.
type outside struct {
	*Host
	lists, countries bool

	generation int
	what       *engine.Outside
	sets       map[string]string // by the names of tasks
	updated    time.Time         // when the country data were that newer is about
	newer      bool
}

func (o *outside) tasks() (tasks map[string]meant, now bool, err error) {
	generation, trial, err := o.RunningNow()
	if err != nil || trial {
		return nil, false, err
	}
	updated := o.CountriesUpdated()
	another := o.what == nil || generation != o.generation
	if another {
		if o.what, err = o.Outside(); err != nil {
			return nil, false, err
		}
		o.generation, o.sets = generation, map[string]string{}
	}
	if another || !updated.Equal(o.updated) {
		o.updated, o.newer = updated, false
		if o.countries && o.what.Countries != "" {
			have, err := o.CountriesInUse()
			if err != nil {
				return nil, false, err
			}
			o.newer = have != o.what.Countries
		}
	}
	tasks = map[string]meant{}
	for _, l := range o.what.Lists {
		if o.lists && l.Every > 0 {
			name := schedule.List(l.Set)
			o.sets[name] = l.Set
			tasks[name] = meant{o.Copied(l), l.Every}
		}
	}
	if o.newer {
		tasks[schedule.Countries] = meant{}
	}
	return tasks, true, nil
}

// refresh has the policy refreshed, and says what of it failed.
func (h *Host) refresh(ctx context.Context, in api.RefreshRequest) error {
	var out engine.Refreshed
	if err := h.worked(ctx, "refresh", in, &out); err != nil {
		return err
	}
	for _, l := range out.Lists {
		if l.Error != "" {
			return errors.New(l.Error)
		}
	}
	if out.Refreshed != nil && out.Stopped {
		return errors.New(Stopped(&out) + "; sluice refresh shows more")
	}
	return nil
}

// Stopped says whom lists would cut that were not taken for it.
func Stopped(r *engine.Refreshed) string {
	if r.LockedOut != "" {
		return r.LockedOut + " is logged in over ssh and would be locked out"
	}
	return english.Plural(len(r.Flows), "live connection") + " would be cut, or not allowed again"
}

// Countries has the country data updated from publishers, the one that decides first, until
// the context ends.
func (h *Host) Countries(ctx context.Context, from []string, every time.Duration) {
	k := h.keeper(h.CountriesDir(), "updates the country data")
	k.tasks = func() (map[string]meant, bool) {
		done := h.CountriesUpdated()
		if was := k.plan[schedule.Countries].Done; was.After(done) && !was.After(k.now()) {
			done = was // they were asked for, or gone back from
		}
		return map[string]meant{schedule.Countries: {done, every}}, true
	}
	k.do = func(ctx context.Context, _ string) error {
		return h.worked(ctx, "updateCountries", api.UpdateCountriesRequest{From: from}, &geo.UpdateResult{})
	}
	k.told = func(string) string { return "newer country data" }
	k.run(ctx)
}

func (h *Host) worked(ctx context.Context, operation string, in, out any) error {
	request, err := json.Marshal(in)
	if err != nil {
		return err
	}
	order := work.Order{Operation: operation, Request: request, Wait: h.Wait, By: h.By}
	result, err := h.Work(ctx, order, func(api.Line) {})
	if err != nil {
		return err
	}
	return json.Unmarshal(result, out)
}
