package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/engine/apply"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/prove/explain"
	"sluice/internal/system/host"
)

// mostExceptions bounds how many hold at a time: each is a rule or more that every new
// flow is asked by.
const mostExceptions = 256

// Allowing is whom a command lets in, or whom one lets in no longer.
type Allowing struct {
	What    addrset.Range
	Service string        // as rules write it; "" is every one
	For     time.Duration // 0: until it is lifted
	OverBan bool          // before bans too
	Force   bool          // lift it also where somebody who is logged in could not come back
	// Bounded lets in only where the policy says who may be: for whoever is not root.
	Bounded bool
	Unban   func(what string) string // as in explain.Words
}

// Allowed is what came of a command that lets somebody in, or of one that lifts it.
type Allowed struct {
	Exceptions []apply.Exception `json:"exceptions"` // that came, or were lifted
	Generation int               `json:"generation"` // that runs now
	// LockedOut is who could not log in again; then nothing was changed.
	LockedOut string   `json:"locked-out,omitempty"`
	Notes     []string `json:"notes,omitempty"`
}

// Allows are the exceptions that hold.
func (h *Host) Allows(context.Context) ([]AllowEntry, error) {
	hold, err := h.Exceptions()
	if err != nil {
		return nil, err
	}
	hold = apply.LetIn(hold)
	var loaded []apply.Exception
	if g, _, err := h.RunningPolicy(); err == nil {
		loaded = apply.LetIn(g.Exceptions)
	}
	out := []AllowEntry{}
	for _, e := range with(hold, loaded) {
		out = append(out, AllowEntry{e, slices.Contains(loaded, e), !slices.Contains(hold, e)})
	}
	return out, nil
}

// AllowEntry is an exception, and whether the rules that run have it.
type AllowEntry struct {
	apply.Exception
	InForce bool `json:"in-force"`
	// Lifted says that the rules should not have it: a command was killed, or an older
	// policy with it came back.
	Lifted bool `json:"lifted,omitempty"`
}

// with are the exceptions that hold, and those that the rules have beside them.
func with(hold, loaded []apply.Exception) []apply.Exception {
	out := slices.Clone(hold)
	for _, e := range apply.LiveExceptions(loaded, time.Now()) {
		if !slices.Contains(hold, e) {
			out = append(out, e)
		}
	}
	return out
}

// Allow lets an address in before the rules of the running policy. Where it is let in to
// the same service already, this takes the place of that.
func (h *Host) Allow(ctx context.Context, in Allowing) (*Allowed, error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*Allowed, error) { return h.Allow(ctx, in) })
	}
	running, service, hold, err := h.excepting(in)
	if err == nil {
		err = running.Policy.Polices()
	}
	if err == nil {
		err = h.permitted(ctx, running, in)
	}
	if err != nil {
		return nil, err
	}
	now := time.Now()
	e := apply.Exception{What: in.What.String(), Service: service, Since: now.Truncate(time.Second).UTC(), By: h.By, OverBan: in.OverBan}
	if in.For > 0 {
		e.Until = now.Add(in.For + time.Second - 1).Truncate(time.Second).UTC()
	}
	forbidden, err := h.forbidden(ctx, []apply.Exception{e})
	if err != nil {
		return nil, err
	}
	if why, is := forbidden[0]; is {
		return nil, &ForbiddenError{why}
	}
	next := append(slices.DeleteFunc(slices.Clone(hold), e.Same), e)
	if n := len(apply.LetIn(next)); n > mostExceptions {
		return nil, fmt.Errorf("%d exceptions are in force, which is the most allowed", n-1)
	}
	out, err := h.excepted(ctx, running, hold, next, true)
	if err != nil {
		return nil, err
	}
	out.Exceptions = []apply.Exception{e}
	if !in.OverBan {
		out.Notes = append(out.Notes, h.bansFirst(ctx, running, in.What, explain.Words{Unban: in.Unban})...)
	}
	return out, nil
}

// bansFirst are notes on the bans of whom an exception lets in, which come before it.
func (h *Host) bansFirst(ctx context.Context, running *Subject, what addrset.Range, w explain.Words) []string {
	const first = ", and bans come first: only an exception over bans lets it in"
	all := addrset.Of(what)
	out := h.notesOnBans(ctx, running, all, func(b *explain.Ban) string {
		return w.With(b.Of(b.What)+first, b)
	})
	if len(running.Policy.Ban) == 0 {
		return out
	}
	r, err := h.runningResolved(ctx, running)
	if err != nil {
		return append(out, fmt.Sprintf("whether the policy bans %s is not known: %v", what, err))
	}
	for _, ban := range r.Policy.Ban {
		for _, item := range ban.Items {
			var set addrset.Set
			if item.Name == "" {
				set = addrset.Of(item.Literal)
			} else if named := r.Sets[item.Name]; named != nil {
				set = named.Addresses
			}
			if set.Overlaps(all) {
				out = append(out, fmt.Sprintf("%s is banned by the policy, at %s%s", what, item.Pos, first))
			}
		}
	}
	return out
}

// UnboundedError says that somebody who is not root would let somebody in, and the policy
// says nothing about that.
type UnboundedError struct{}

func (UnboundedError) Error() string {
	return "the running policy has no section exceptions, so only root may allow addresses by command"
}

// permitted says why the running policy forbids an exception.
func (h *Host) permitted(ctx context.Context, running *Subject, in Allowing) error {
	if in.Bounded && running.Policy.Exceptions == nil {
		return UnboundedError{}
	}
	return running.Policy.MayExcept(in.What, in.For, h.whoMay(ctx, running).of(running.Policy.Exceptions))
}

// inWho says whether bounds name an address among who may be let in.
type inWho func(*policy.ExceptionBounds, addrset.Range) (bool, error)

func (w inWho) of(b *policy.ExceptionBounds) func(addrset.Range) (bool, error) {
	return func(what addrset.Range) (bool, error) { return w(b, what) }
}

// whoMay says whether the running policy names an address among who may be let in.
func (h *Host) whoMay(ctx context.Context, running *Subject) inWho {
	return among(func() (*resolve.Resolved, error) { return h.runningResolved(ctx, running) })
}

// runningResolved is what the names of the running policy stand for on the host that it was
// applied for, with the copies of lists that there are now.
func (h *Host) runningResolved(ctx context.Context, running *Subject) (*resolve.Resolved, error) {
	var facts host.Facts
	if err := json.Unmarshal(running.Runs.Facts, &facts); err != nil {
		return nil, fmt.Errorf("read the facts of generation %d: %w", running.Runs.Number, err)
	}
	from := h.sources()
	from.Offline, from.sum = true, running.Runs.Inputs[resolve.CountryData]
	return from.Resolve(ctx, running.Policy, facts)
}

// among is inWho of a policy, which is resolved when that is first asked.
func among(resolved func() (*resolve.Resolved, error)) inWho {
	once := sync.OnceValues(resolved)
	known := map[*policy.ExceptionBounds]addrset.Set{}
	return func(b *policy.ExceptionBounds, what addrset.Range) (bool, error) {
		all, is := known[b]
		if !is {
			r, err := once()
			if err != nil {
				return false, err
			}
			for _, w := range b.Who {
				for _, item := range w.Items {
					if set := r.Sets[item.Name]; set != nil {
						all = all.Union(set.Addresses)
					} else if item.Name == "" {
						all = all.Union(addrset.Of(item.Literal))
					}
				}
			}
			known[b] = all
		}
		return all.ContainsSet(addrset.Of(what)), nil
	}
}

// mostRefused is how many exceptions that a policy leaves out are named.
const mostRefused = 10

// admitted are those that a policy would let in now, and what is in sets, among those that hold; refused says which
// it would not, and why.
func admitted(p *policy.Policy, hold []apply.Exception, who inWho) (in []apply.Exception, refused string, err error) {
	var lines []string
	ofFleet := false
	for _, e := range apply.LiveExceptions(hold, time.Now()) {
		if e.Set != "" {
			in = append(in, e)
			continue
		}
		why, err := admits(p, e, who)
		switch {
		case err != nil:
			return nil, "", err
		case why != "":
			lines = append(lines, "\n  "+e.Text()+": "+why)
			ofFleet = ofFleet || e.ID != ""
		default:
			in = append(in, e)
		}
	}
	n := len(lines)
	if n == 0 {
		return in, "", nil
	}
	if n > mostRefused {
		lines = append(lines[:mostRefused], fmt.Sprintf("\n  and %d more", n-mostRefused))
	}
	by := " by command"
	if ofFleet {
		by = ""
	}
	return in, english.Plural(n, "exception") + by + " that the policy forbids, and leaves out" + strings.Join(lines, ""), nil
}

// admits says why a policy forbids an exception; "" where it does not.
func admits(p *policy.Policy, e apply.Exception, who inWho) (string, error) {
	what, err := addrset.ParseRange(e.What)
	if err != nil {
		return "", err
	}
	length := time.Duration(0)
	if !e.Until.IsZero() {
		length = max(e.Until.Sub(e.Since)-time.Second, time.Second) // both are rounded, away from each other
	}
	may, bounds := p.MayExcept, p.Exceptions
	if e.ID != "" {
		if p.Fleet == nil {
			return "the policy is not one of the fleet that allows it", nil
		}
		may, bounds = p.MayAllow, p.Fleet.Exceptions
	}
	var failed error // of resolving, which is a *policy.Error too
	err = may(what, length, func(what addrset.Range) (bool, error) {
		is, err := who(bounds, what)
		failed = err
		return is, err
	})
	var why *policy.Error
	if failed == nil && errors.As(err, &why) {
		return fmt.Sprintf("%s: %s", why.Pos, why.Message), nil
	}
	return "", err
}

// NotAllowedError says that somebody is not allowed by command.
type NotAllowedError struct{ What, Service string }

func (e *NotAllowedError) Error() string {
	if e.Service == "" {
		return "not allowed by command: " + e.What
	}
	return fmt.Sprintf("not allowed by command: %s to %s", e.What, e.Service)
}

// Found is for words.Ended: as "unban" of what is not banned.
func (*NotAllowedError) Found() {}

// FleetAllowsError says that the fleet of the host lets somebody in, which no command of the
// host lifts.
type FleetAllowsError struct{ What string }

func (e *FleetAllowsError) Error() string { return "allowed by the fleet: " + e.What }

// Found is for words.Ended.
func (*FleetAllowsError) Found() {}

// Disallow lifts what lets an address in: to one service, or without one to all.
func (h *Host) Disallow(ctx context.Context, in Allowing) (*Allowed, error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*Allowed, error) { return h.Disallow(ctx, in) })
	}
	running, service, hold, err := h.excepting(in)
	if err != nil {
		return nil, err
	}
	member, err := h.Membership()
	if err != nil {
		return nil, err
	}
	ofFleet := false
	asked := func(e apply.Exception) bool {
		is := e.Set == "" && e.What == in.What.String() && (in.Service == "" || e.Service == service)
		if is && e.ID != "" && member != nil { // a host that has left its fleet lifts what that let in
			ofFleet = true
			return false
		}
		return is
	}
	next := slices.DeleteFunc(slices.Clone(hold), asked)
	lifted := slices.DeleteFunc(with(apply.LetIn(hold), apply.LetIn(running.Runs.Exceptions)), func(e apply.Exception) bool { return !asked(e) })
	switch {
	case len(lifted) == 0 && ofFleet:
		return nil, &FleetAllowsError{in.What.String()}
	case len(lifted) == 0:
		return nil, &NotAllowedError{in.What.String(), in.Service}
	}
	out, err := h.excepted(ctx, running, hold, next, in.Force)
	if err == nil && out.LockedOut == "" {
		out.Exceptions = lifted
	}
	return out, err
}

// excepting is what a change of the exceptions begins with: what runs, the service as any
// policy writes it, and those that hold.
func (h *Host) excepting(in Allowing) (running *Subject, service string, hold []apply.Exception, err error) {
	if running, err = h.Running(nil); err == nil {
		service, err = running.Policy.Service(in.Service)
	}
	if err == nil {
		hold, err = h.Exceptions()
	}
	return running, service, hold, err
}

// excepted loads the running policy with other exceptions.
func (h *Host) excepted(ctx context.Context, running *Subject, from, to []apply.Exception, force bool) (*Allowed, error) {
	loaded, _, err := admitted(running.Policy, to, h.whoMay(ctx, running))
	if err == nil {
		err = except(running.Policy, loaded)
	}
	if err != nil {
		return nil, err
	}
	r, staging, err := h.refreshing(ctx, running, Refreshing{AllowCut: force})
	if err != nil {
		return nil, err
	}
	defer staging.Discard()
	r.excepting, r.loaded = &apply.Excepting{From: from, To: to}, loaded
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	out := &Allowed{Exceptions: []apply.Exception{}, Generation: r.out.Generation, Notes: r.out.Notes}
	if r.out.Stopped {
		out.LockedOut = r.out.LockedOut
	}
	return out, nil
}

// exceptions are those that a refresh loads, of those that hold.
func (r *refreshing) exceptions() (loaded, hold []apply.Exception) {
	if r.excepting != nil {
		return r.loaded, r.excepting.To
	}
	return r.generation.Exceptions, slices.Concat(r.generation.Exceptions, r.generation.LeftOut)
}

// takeExceptions loads the running policy with the exceptions that hold, where it runs
// with others: after a way back.
func (h *Host) takeExceptions(ctx context.Context) error {
	drift, err := h.ExceptionDrift()
	if err != nil || len(drift) == 0 {
		return err
	}
	running, err := h.Running(nil)
	if err != nil {
		return err
	}
	hold, err := h.Exceptions()
	if err != nil {
		return err
	}
	_, err = h.excepted(ctx, running, hold, hold, true)
	return err
}

// except puts the exceptions that hold before the rules of a policy that is applied, except for
// those that it forbids.
func (p *preparation) except(ctx context.Context) (err error) {
	p.Exceptions, p.refused, err = admitted(p.Policy, p.hold, among(func() (*resolve.Resolved, error) {
		return p.Sources.Resolve(ctx, p.Policy, p.Facts)
	}))
	if err == nil {
		err = except(p.Policy, p.Exceptions)
	}
	return err
}

// except puts exceptions that hold before the rules of a policy that is asked about.
func (s *Subject) except(ctx context.Context, hold []apply.Exception) error {
	in, _, err := admitted(s.Policy, hold, among(func() (*resolve.Resolved, error) {
		err := s.Resolve(ctx)
		return s.Resolved, err
	}))
	if err == nil {
		err = except(s.Policy, in)
	}
	return err
}

// except puts those that are not over before the rules of a policy, and into its sets.
func except(p *policy.Policy, list []apply.Exception) error {
	var out []policy.Exception
	var added []policy.Addition
	for _, e := range apply.LiveExceptions(list, time.Now()) {
		what, err := addrset.ParseRange(e.What)
		if err != nil {
			return err
		}
		if e.Set != "" {
			added = append(added, policy.Addition{Set: e.Set, What: what, Until: e.Until})
		} else {
			out = append(out, policy.Exception{What: what, Service: e.Service, Until: e.Until, OverBan: e.OverBan})
		}
	}
	p.Add(added)
	return p.Except(out)
}
