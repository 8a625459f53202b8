package judge

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"

	"sluice/internal/base/turns"
	"sluice/internal/engine"
	"sluice/internal/fleet/classes"
	"sluice/internal/fleet/inventory"
	"sluice/internal/language/policy"
	"sluice/internal/prove/check"
	"sluice/internal/system/host"
	"sluice/internal/words"
)

// Judge judges policies, one at a time: who asks has a [Judge.Turn].
type Judge struct {
	sources *engine.Sources
	facts   *classes.Facts
	lists   string
	turns   *turns.Turns
	growth  uint64     // bytes of the heap, see mostGrowth
	read    []*reading // the last ones, the newest last; of whose turn it is
	kept    kept
	atlases atlases
	asked   asked
}

// mostRead is how many policies are kept as they were read: what was published, and drafts.
const mostRead = 3

// Options are where a judge finds what policies name.
type Options struct {
	State string                            // with country data, where there are newer ones than the program's own
	Lists string                            // the folder of Files with what URLs of sets served
	Facts func(name string) ([]byte, error) // of hosts, by the names that inventories give them
}

// New is a judge.
func New(o Options) *Judge {
	j := &Judge{sources: &engine.Sources{State: o.State, Offline: true}, lists: o.Lists, turns: turns.New(), growth: mostGrowth}
	j.facts = classes.NewFacts(func(name string) (host.Facts, error) {
		text, err := o.Facts(name)
		if err != nil {
			return host.Facts{}, err
		}
		return engine.ParseFacts(name, text)
	})
	return j
}

// Asked is a policy, and for whom it is judged.
type Asked struct {
	Files Files
	Hosts *inventory.Inventory // that are asked about
	All   *inventory.Inventory // whose addresses sets hold
	At    string               // tells these hosts, and what is known of them, from others
}

// key tells policies apart.
func (a *Asked) key() (key [sha256.Size]byte) {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(a.Files)) {
		fmt.Fprintf(h, "%q %s\n", name, a.Files[name].Sum)
	}
	fmt.Fprint(h, a.At)
	h.Sum(key[:0])
	return key
}

// reading is a policy whose hosts are in classes.
type reading struct {
	*classes.Fleet
	key     [sha256.Size]byte
	around  string // see [Judge.around]
	ends    bool   // some rules may
	classes []*classes.Class
	found   []classes.Found // what is wrong with the rest
}

// classify reads a policy, and parts its hosts into classes.
func (j *Judge) classify(ctx context.Context, a *Asked) (*reading, error) {
	key := a.key()
	if i := slices.IndexFunc(j.read, func(r *reading) bool { return r.key == key }); i >= 0 {
		r := j.read[i]
		j.read = append(slices.Delete(j.read, i, i+1), r)
		return r, nil
	}
	f, err := classes.Reading{Files: a.Files, Inventory: a.Hosts, All: a.All, Sources: j.sources, Facts: j.facts, Lists: j.lists, Processors: processors()}.Read()
	if err != nil {
		return nil, err
	}
	around, err := j.around(a.Files)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for i := range a.All.Hosts {
		names[a.All.Hosts[i].Facts] = true
	}
	j.facts.Keep(names)
	r := &reading{Fleet: f, key: key, around: around}
	for _, name := range append([]string{f.Policy.File}, partsOf(f)...) {
		r.ends = r.ends || bytes.Contains(f.Policy.Text(name), []byte("until"))
	}
	if r.classes, r.found, err = f.Classes(ctx); err != nil {
		return nil, err
	}
	if len(a.Hosts.Hosts) < len(a.All.Hosts) { // a part may be of hosts that are not asked about
		r.found = slices.DeleteFunc(r.found, func(f classes.Found) bool { return f.Code == classes.IdlePart })
	}
	j.read = append(j.read, r)
	j.read = slices.Clone(j.read[max(0, len(j.read)-mostRead):])
	return r, nil
}

func partsOf(f *classes.Fleet) (names []string) {
	for _, p := range f.Policy.Fleet.Parts {
		names = append(names, p.File)
	}
	return names
}

// processors are those that are used at once: one at least stays for agents, where there are more.
func processors() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// sound is the error of hosts that have no policy, where there are any.
func (r *reading) sound() error {
	var wrong []check.Finding
	for _, f := range classes.Join(r.found) {
		wrong = append(wrong, f.Finding)
	}
	return check.Errors(wrong)
}

// WrongError says that a policy has errors, which a check reports.
type WrongError struct{ Err error }

func (e *WrongError) Error() string { return e.Err.Error() }

// Unwrap is for errors.As.
func (e *WrongError) Unwrap() error { return e.Err }

// wrong is a *WrongError where an error is of a policy.
func wrong(err error) error {
	var errs policy.Errors
	var one *policy.Error
	if errors.As(err, &errs) || errors.As(err, &one) {
		return &WrongError{err}
	}
	return err
}

// Checked is what was found, and in which classes hosts are.
type Checked struct {
	Fleet    string
	Classes  []*classes.Class
	Findings []classes.Found
}

// Check finds what is wrong with a policy, for all hosts that are asked about.
func (j *Judge) Check(ctx context.Context, a *Asked, done func(n, of int)) (*Checked, error) {
	out := &Checked{}
	r, err := j.classify(ctx, a)
	if err != nil {
		found, err := engine.Findings(err)
		for _, f := range found {
			out.Findings = append(out.Findings, classes.Found{Finding: f})
		}
		return out.worded(), err
	}
	found, err := j.checked(ctx, r, counting(len(r.classes), done))
	if err != nil {
		return nil, err
	}
	out.Fleet, out.Classes, out.Findings = r.Policy.Fleet.Name, r.classes, classes.Join(slices.Concat(r.found, found))
	return out.worded(), nil
}

// checked is what is wrong with each class.
func (j *Judge) checked(ctx context.Context, r *reading, done func(*classes.Class)) (out []classes.Found, err error) {
	var ask []*classes.Class
	add := func(c *classes.Class, all []check.Finding) {
		for _, f := range all {
			out = append(out, classes.Found{Finding: f, Classes: []*classes.Class{c}})
		}
	}
	for _, c := range r.classes {
		if has, is := j.kept.get(r.keyOf(c, "check")); is {
			all, _ := has.([]check.Finding)
			add(c, all)
			done(c)
		} else {
			ask = append(ask, c)
		}
	}
	found, err := r.Check(ctx, ask, done)
	if err != nil {
		return nil, err
	}
	of := map[*classes.Class][]check.Finding{}
	for _, f := range found {
		of[f.Classes[0]] = append(of[f.Classes[0]], f.Finding)
	}
	for _, c := range ask {
		j.kept.put(r.keyOf(c, "check"), of[c])
		add(c, of[c])
	}
	return out, nil
}

// Sound says that no finding is an error.
func (c *Checked) Sound() bool {
	return !slices.ContainsFunc(c.Findings, func(f classes.Found) bool { return f.Severity == check.Error })
}

func (c *Checked) worded() *Checked {
	for i := range c.Findings {
		Remedy(&c.Findings[i].Finding)
	}
	return c
}

// Diff says what becomes otherwise where a policy takes the place of another one. The error
// is a *WrongError where one of them has errors.
func (j *Judge) Diff(ctx context.Context, next, before *Asked, done func(n, of int)) (*classes.Comparison, *policy.Policy, error) {
	old, err := j.classify(ctx, before)
	if err == nil {
		err = old.sound()
	}
	if err != nil {
		return nil, nil, wrong(fmt.Errorf("what was published: %w", err))
	}
	now, err := j.classify(ctx, next)
	if err == nil {
		err = now.sound()
	}
	if err != nil {
		return nil, nil, wrong(err)
	}
	d, err := now.Compare(ctx, now.classes, old.Fleet, old.classes, counting(len(now.classes), done))
	return d, now.Policy, wrong(err)
}

// counting tells done how many classes of all are done; it may be called at the same time. Of
// classes that are done in several steps no more are told than there are.
func counting(of int, done func(n, of int)) func(*classes.Class) {
	if done == nil {
		return func(*classes.Class) {}
	}
	var mutex sync.Mutex
	n := 0
	return func(*classes.Class) {
		mutex.Lock()
		defer mutex.Unlock()
		n++
		done(min(n, of), of)
	}
}

// Remedy words what a finding says would fix it.
func Remedy(f *check.Finding) {
	if f.Code == engine.UnmetExpectation {
		f.Hint += "; sluice-controller test tells more of the packets"
	}
	f.Hint += words.PolicyRemedy(f.Remedy)
}
