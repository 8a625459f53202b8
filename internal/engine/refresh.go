package engine

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sluice/internal/base/fetch"
	"sluice/internal/base/regular"
	"sluice/internal/engine/apply"
	"sluice/internal/language/apart"
	"sluice/internal/language/lists"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/prove/check"
	"sluice/internal/system/host"
)

// Refreshing is how the lists of the running policy are refreshed.
type Refreshing struct {
	Sets      []string // whose lists are asked for; none: those that are due
	Countries bool     // take the country data in use too, and without Sets no lists
	DryRun    bool     // change nothing
	AllowCut  bool     // also where live connections are cut or somebody is locked out
	Force     bool     // take lists of any size
	// Given is what a controller gave of live lists, which are asked for nowhere; then no other
	// list is asked for either.
	Given []GivenList
}

// GivenList is what a live list holds, or would hold.
type GivenList struct {
	Name string // as policy.SignedList calls it
	File string
	Gzip []byte // instead of a file: the text, compressed
}

func (g *GivenList) open() (io.ReadCloser, error) {
	if g.Gzip != nil {
		return gzip.NewReader(bytes.NewReader(g.Gzip))
	}
	return regular.Open(g.File)
}

// Refreshed is what came of it.
type Refreshed struct {
	Lists []RefreshedList `json:"lists"`
	*apply.Refreshed
	DryRun bool `json:"dry-run,omitempty"`
}

// RefreshedList is what came of asking for one list.
type RefreshedList struct {
	Set   string      `json:"set"`
	URL   string      `json:"url"`
	State lists.State `json:"state,omitempty"`
	Error string      `json:"error,omitempty"`
	Copy  time.Time   `json:"copy,omitzero"` // with Error: of when the copy is that is used

	Given string `json:"given,omitempty"` // the name of what was given

	Refused bool `json:"refused,omitempty"` // with Error: it could be had, and its size can hardly be meant
}

// NoListError says that the running policy has no set with a list of that name.
type NoListError struct {
	Set   string
	Known []string // sets that have one
}

func (e *NoListError) Error() string {
	return fmt.Sprintf("the running policy has no set %q with a url", e.Set)
}

// SignedListError says that no server is asked for a list, since it was signed with the
// policy of a fleet.
type SignedListError struct {
	Set  string
	Live bool // and the controller of the fleet asks for it
}

func (e *SignedListError) Error() string {
	if e.Live {
		return fmt.Sprintf("the list of set %q is live: the controller of the fleet downloads it, and this host does not", e.Set)
	}
	return fmt.Sprintf("the list of set %q was signed with the policy of the fleet, and is not downloaded", e.Set)
}

// OldGenerationError says that a generation was applied by a program that did not record
// what it was made of.
type OldGenerationError struct{ Generation *apply.Generation }

func (e *OldGenerationError) Error() string {
	return fmt.Sprintf("generation %d was applied by an older sluice, which did not record its sources", e.Generation.Number)
}

// OthersChangedError says that more than lists has changed since a generation was applied.
type OthersChangedError struct {
	Generation *apply.Generation
	Names      []string // of what has changed
}

func (e *OthersChangedError) Error() string {
	return fmt.Sprintf("more than lists has changed since generation %d was applied: %s\n  nothing changed", e.Generation.Number, strings.Join(e.Names, ", "))
}

// refreshing is a refresh under way.
type refreshing struct {
	Refreshing
	host       *Host
	state      string // absolute
	generation *apply.Generation
	policy     *policy.Policy
	store      lists.Store
	sources    *Sources
	excepting  *apply.Excepting
	loaded     []apply.Exception // with excepting: of which rules are made
	out        *Refreshed
}

// Refresh asks for the lists of the running policy, and loads it with those that are
// newer. Lists that could not be had are in the result, and hinder no other. Country data
// that were updated since stay out of it unless they are asked for.
func (h *Host) Refresh(ctx context.Context, in Refreshing) (*Refreshed, error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*Refreshed, error) { return h.Refresh(ctx, in) })
	}
	running, err := h.Running(nil)
	if err != nil {
		return nil, err
	}
	r, staging, err := h.refreshing(ctx, running, in)
	if err != nil {
		return nil, err
	}
	defer staging.Discard()
	var due []*policy.Set
	switch {
	case len(in.Given) > 0:
		if err := r.give(staging); err != nil || len(r.out.Lists) == 0 {
			return r.out, err
		}
	case !in.Countries || len(in.Sets) > 0:
		if due, err = dueLists(r.store, r.policy, in.Sets); err != nil || len(due) == 0 {
			return r.out, err
		}
	}
	for _, s := range due {
		r.fetch(ctx, staging, s)
	}
	err = r.load(ctx)
	if err == nil && !in.DryRun && !r.out.Stopped {
		err = staging.Keep()
	}
	if err != nil {
		return nil, err
	}
	return r.out, nil
}

// give takes what was given of the lists that the policy has.
func (r *refreshing) give(staging *lists.Staging) error {
	for _, given := range r.Given {
		for _, s := range r.policy.Sets {
			if !s.Live || s.File == nil || policy.SignedList(s.Name, s.URL.Text) != given.Name {
				continue
			}
			text, err := given.open()
			if err != nil {
				return err
			}
			err = staging.Give(resolve.LiveCopy(s.URL.Text), text)
			if err := errors.Join(err, text.Close()); err != nil {
				return fmt.Errorf("set %s: %w", s.Name, err)
			}
			r.out.Lists = append(r.out.Lists, RefreshedList{Set: s.Name, URL: fetch.Redact(s.URL.Text), State: lists.Fetched, Given: given.Name})
		}
	}
	return nil
}

// refreshing prepares to load the policy that runs again, of what it was made of; who calls
// discards what was staged.
func (h *Host) refreshing(ctx context.Context, running *Subject, in Refreshing) (*refreshing, *lists.Staging, error) {
	state, err := filepath.Abs(h.State)
	if err != nil {
		return nil, nil, err
	}
	g := running.Runs
	store := lists.Store{Dir: filepath.Join(state, "lists"), Context: ctx, Child: h.Fetch, Unconfined: apart.Once(h.note)}
	staging := store.Stage()
	r := &refreshing{
		store:      store,
		Refreshing: in, host: h, state: state, generation: g, policy: running.Policy,
		sources: &Sources{State: state, Fetch: h.Fetch, Warn: h.Warn, Words: h.Words, staged: staging},
		out:     &Refreshed{Lists: []RefreshedList{}, Refreshed: &apply.Refreshed{Generation: g.Number, Unchanged: true}, DryRun: in.DryRun},
	}
	if !in.Countries {
		r.sources.sum = g.Inputs[resolve.CountryData]
	}
	return r, staging, nil
}

// load brings the policy into the kernel, where it became another one.
func (r *refreshing) load(ctx context.Context) error {
	b, err := r.host.BackendOf(r.generation)
	if err != nil {
		return err
	}
	b, _ = r.host.calibrated(b)
	var facts host.Facts
	if err := json.Unmarshal(r.generation.Facts, &facts); err != nil {
		return fmt.Errorf("read the facts of generation %d: %w", r.generation.Number, err)
	}
	prepared, err := r.prepare(ctx, facts, Options{Sources: r.sources, Backend: b, Without: r.generation.Without, Profile: r.generation.Profile})
	if err == nil && prepared != nil {
		r.out.Refreshed, err = r.host.With(b).Refresh(ctx, *prepared)
	}
	return err
}

// dueLists are the sets whose lists are to be asked for.
func dueLists(store lists.Store, p *policy.Policy, names []string) ([]*policy.Set, error) {
	var out []*policy.Set
	var all []string
	for _, s := range p.Sets {
		if s.URL == nil {
			continue
		}
		if s.File != nil {
			if slices.Contains(names, s.Name) {
				return nil, &SignedListError{s.Name, s.Live}
			}
			continue
		}
		all = append(all, s.Name)
		if len(names) > 0 {
			if slices.Contains(names, s.Name) {
				out = append(out, s)
			}
			continue
		}
		due, err := store.Due(s.URL.Text, s.Refresh)
		if err != nil {
			return nil, err
		}
		if due {
			out = append(out, s)
		}
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return nil, &NoListError{name, all}
		}
	}
	return out, nil
}

// fetch asks for one list. One that cannot be had hinders no other.
func (r *refreshing) fetch(ctx context.Context, staging *lists.Staging, s *policy.Set) {
	out := RefreshedList{Set: s.Name, URL: fetch.Redact(s.URL.Text)}
	state, err := staging.Fetch(ctx, s.URL.Text, r.Force)
	if err != nil {
		var size *lists.SizeError
		out.Error, out.Refused = wordsOf(err, r.host.Words), errors.As(err, &size)
		if at, there := staging.Copied(s.URL.Text); there {
			out.Copy = at
		}
	}
	out.State = state
	r.out.Lists = append(r.out.Lists, out)
}

// prepare builds the policy with the new lists; nil where they say what the old ones
// did.
func (r *refreshing) prepare(ctx context.Context, was host.Facts, o Options) (*apply.Refreshing, error) {
	resolved, err := r.sources.Resolve(ctx, r.policy, was)
	if err != nil {
		return nil, err
	}
	others, changed, known := r.generation.ChangedInputs(resolved.Inputs)
	if at := slices.Index(others, resolve.CountryData); r.Countries && at >= 0 {
		others, changed = slices.Delete(others, at, at+1), true
	}
	switch {
	case !known && len(resolved.Inputs) > 0:
		return nil, &OldGenerationError{r.generation}
	case len(others) > 0:
		return nil, &OthersChangedError{r.generation, others}
	case !changed && r.excepting == nil:
		return nil, nil
	}
	// The host is checked as it is now.
	facts, err := Facts(ctx, r.state, r.host.Namespace, r.host.Session)
	if err != nil {
		return nil, err
	}
	findings := check.Run(resolved, facts)
	for _, text := range warnings(findings) {
		r.host.warn(text)
	}
	if err := check.Errors(findings); err != nil {
		return nil, err
	}
	built := &Built{Resolved: resolved}
	if err := built.lower(Capabilities(ctx, r.state, o.Backend), o); err != nil {
		return nil, err
	}
	failing, err := r.sources.unmet(ctx, resolved, built.Expected)
	if err != nil {
		return nil, err
	}
	guard, err := ReadGuard(r.host.Guard)
	if err != nil {
		return nil, err
	}
	unguarded, err := r.sources.unguarded(ctx, guard, resolved, built.Expected)
	if err != nil {
		return nil, err
	}
	if broken, err := r.host.broken(ctx, unguarded); err != nil || len(broken) > 0 {
		return nil, cmp.Or(err, error(&GuardError{r.host.Guard, broken}))
	}
	for _, u := range slices.Concat(unguarded, failing) {
		r.host.warn(u.Expectation.Pos.String() + ": " + u.Unmet())
	}
	loaded, hold := r.exceptions()
	return &apply.Refreshing{
		Input: apply.Input{
			Program: built.Program, Expected: built.Expected, Artifact: built.Artifact, Profile: o.Profile, Without: o.Without, Sources: resolved.Inputs,
			SSHClients: apply.SSHClients(was.WithSSHClientsNow(r.host.Session)), Memory: apply.FreeMemory(),
			Exceptions: loaded, Hold: hold,
		},
		Generation: r.generation.Number, Excepting: r.excepting, AllowCut: r.AllowCut, DryRun: r.DryRun,
	}, nil
}
