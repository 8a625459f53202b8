package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"sluice/internal/base/addrset"
	"sluice/internal/base/selector"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

const (
	mostHolds = 10_000 // bans of one request
	mostShown = 1000   // of one answer
	// mostAllows leaves room among the 256 that a host has at a time for its own.
	mostAllows = 128
	mostWho    = 200 // bytes of the name of who does it

	mostWhat    = 128 // bytes
	mostService = 256
	mostReason  = 200
	mostSeconds = 10 * 365 * 24 * 60 * 60
)

// banBounds are what the newest bundle lets the controller ban and let in.
type banBounds struct {
	mutex  sync.Mutex
	bundle int64
	policy *policy.Policy
}

// bounded is the policy of the newest bundle.
func (c *Controller) bounded(ctx context.Context) (*policy.Policy, error) {
	number := newest(c.view.Load())
	if number == 0 {
		return nil, wrong("no bundle is published yet, and its fleet.yaml says what the controller may ban and let in")
	}
	c.bounds.mutex.Lock()
	defer c.bounds.mutex.Unlock()
	if c.bounds.bundle == number {
		return c.bounds.policy, nil
	}
	of, err := c.contents.of(ctx, c.Store, number)
	if err != nil {
		return nil, err
	}
	p, _, err := c.policyOf(ctx, &of.manifest)
	if err == nil {
		c.bounds.bundle, c.bounds.policy = number, p
	}
	return p, err
}

// hold bans, or lets in, what a request says.
func (o operator) hold(w http.ResponseWriter, r *http.Request, kind string) {
	asked, fine := in[api.NewHoldings](w, r)
	if !fine {
		return
	}
	out, err := o.holdAll(r.Context(), as(r), kind, asked)
	o.done(w, out, err)
}

// holdable says what nobody could ban or let in, whatever fleet.yaml allows.
func holdable(asked api.NewHoldings) error {
	if n := len(asked.Entries); n == 0 || n > mostHolds {
		return wrong("there are %d entries, and 1 to %d may be", n, mostHolds)
	}
	for _, e := range append([]api.NewHolding{{What: "all", ForSeconds: asked.ForSeconds, Reason: asked.Reason}}, asked.Entries...) {
		if e.What == "" || len(e.What) > mostWhat || len(e.Service) > mostService || len(e.Reason) > mostReason || e.ForSeconds < 0 || e.ForSeconds > mostSeconds {
			return wrong("%.40q of service %.40q for %d s: an entry has 1 to %d bytes, its service %d, its reason %d, and a time of at most %d s",
				e.What, e.Service, e.ForSeconds, mostWhat, mostService, mostReason, mostSeconds)
		}
	}
	return nil
}

func (c *Controller) holdAll(ctx context.Context, by caller, kind string, asked api.NewHoldings) (*api.Held, error) {
	of, err := by.hosts(asked.Hosts)
	if err != nil {
		return nil, err
	}
	hosts := ""
	if of != nil {
		hosts = of.String()
	}
	p, err := c.bounded(ctx)
	if err != nil {
		return nil, err
	}
	out := &api.Held{Written: []api.Holding{}}
	var holds []store.Hold
	for _, e := range asked.Entries {
		h, err := holdOf(p, kind, hosts, e, asked)
		if err != nil {
			out.Refused = append(out.Refused, api.NotHeld{What: e.What, Why: err.Error()})
			continue
		}
		holds = append(holds, h)
	}
	most := mostAllows
	if kind == trust.LivingBan && p.Fleet.Bans != nil {
		most = p.Fleet.Bans.Max
	}
	written, err := c.Store.Hold(ctx, callerName(by.Who), most, asked.KeepLonger, holds)
	c.answered(err)
	if errors.Is(err, store.ErrTooLarge) {
		if kind == trust.LivingBan {
			return nil, wrong("%v", p.Errorf(p.Fleet.Bans.Pos, "", "the fleet lets its controller hold %d bans: %v", most, err))
		}
		return nil, wrong("a fleet lets in %d at a time: %v", most, err)
	}
	if err != nil {
		return nil, err
	}
	out.Kept = len(holds) - len(written)
	for _, e := range written {
		out.Seq = e.Seq
		out.Written = append(out.Written, holdingOf(e))
	}
	return out, nil
}

// holdOf is what an entry of a request holds, or why it may not.
func holdOf(p *policy.Policy, kind, hosts string, e api.NewHolding, all api.NewHoldings) (store.Hold, error) {
	what, err := addrset.ParseRange(e.What)
	if err != nil {
		return store.Hold{}, err
	}
	length := time.Duration(cmp.Or(e.ForSeconds, all.ForSeconds)) * time.Second
	if kind == trust.LivingBan {
		if length == 0 && p.Fleet.Bans != nil {
			length = p.Fleet.Bans.For
		}
		err = p.MayBan(what, length)
	} else if err = p.MayAllow(what, length, letsIn(p)); err == nil && e.Service != "" {
		_, err = p.Asking().Services("service", e.Service)
	}
	if err != nil {
		return store.Hold{}, err
	}
	is := trust.Living{
		Kind: kind, What: what.String(), Service: e.Service, Hosts: hosts, Reason: cmp.Or(e.Reason, all.Reason),
		Made: time.Unix(0, 0), Expires: time.Unix(0, 0).Add(length),
	}
	is.ID = trust.LivingID(is.Kind, is.What, is.Service, is.Hosts)
	if err := is.Check(); err != nil { // or no host would read the log any more
		return store.Hold{}, err
	}
	return store.Hold{Living: store.Living(is), For: length}, nil
}

// letsIn says whether exceptions of the fleet may be for an address, as far as what is
// written says it: what names of sets stand for each host knows, and judges.
func letsIn(p *policy.Policy) func(addrset.Range) (bool, error) {
	return func(what addrset.Range) (bool, error) {
		var all addrset.Set
		for _, who := range p.Fleet.Exceptions.Who {
			for _, item := range who.Items {
				if item.Name != "" {
					return true, nil
				}
				all = all.Union(addrset.Of(item.Literal))
			}
		}
		return all.ContainsSet(addrset.Of(what)), nil
	}
}

// callerName is who asks, as hosts are told of it.
func callerName(who string) string {
	name := []byte{}
	for _, r := range who {
		if unicode.IsControl(r) || r == utf8.RuneError {
			r = '?'
		}
		if len(name)+utf8.RuneLen(r) > mostWho {
			break
		}
		name = utf8.AppendRune(name, r)
	}
	return string(name)
}

func holdingOf(e store.Living) api.Holding {
	return api.Holding{
		Id: e.ID, Seq: e.Seq, What: e.What, Service: e.Service, Hosts: e.Hosts, Reason: e.Reason, Who: e.Who, Made: e.Made, Expires: e.Expires,
	}
}

// lift ends what a request names.
func (o operator) lift(w http.ResponseWriter, r *http.Request, kind, lifts string) {
	asked, fine := in[api.Lift](w, r)
	if !fine {
		return
	}
	out, err := o.liftAll(r.Context(), as(r), kind, lifts, asked)
	o.done(w, out, err)
}

// liftable is what a request would lift, or why nothing can be.
func liftable(asked api.Lift) ([]addrset.Range, error) {
	if n := len(asked.What); n == 0 || n > mostHolds {
		return nil, wrong("there are %d to lift, and 1 to %d may be", n, mostHolds)
	}
	if err := trust.CheckReason(asked.Reason); err != nil {
		return nil, wrong("%v", err)
	}
	ranges := make([]addrset.Range, len(asked.What))
	for i, text := range asked.What {
		var err error
		if ranges[i], err = addrset.ParseRange(text); err != nil {
			return nil, wrong("%v", err)
		}
	}
	return ranges, nil
}

func (c *Controller) liftAll(ctx context.Context, by caller, kind, lifts string, asked api.Lift) (*api.Lifted, error) {
	ranges, err := liftable(asked)
	if err != nil {
		return nil, err
	}
	hosts := ""
	if asked.Hosts != "" {
		s, err := selector.Parse(asked.Hosts)
		if err != nil {
			return nil, wrong("hosts: %v", err)
		}
		hosts = s.String()
	}
	found, err := c.Store.Within(ctx, kind, ranges...)
	c.answered(err)
	if err != nil {
		return nil, err
	}
	out := &api.Lifted{Lifted: []api.Holding{}}
	var ids []string
	for i, of := range found {
		is := false
		for _, e := range of {
			if hosts != "" && e.Hosts != hosts || asked.Service != "" && e.Service != asked.Service || !c.ownedBy(by, e.Hosts) {
				continue
			}
			ids, is = append(ids, e.ID), true
		}
		if !is {
			out.NotThere = append(out.NotThere, ranges[i].String())
		}
	}
	for some := range slices.Chunk(ids, mostHolds) {
		lifted, err := c.Store.Lift(ctx, callerName(by.Who), lifts, asked.Reason, some)
		c.answered(err)
		if err != nil {
			return nil, err
		}
		for _, e := range lifted {
			out.Seq = e.Seq
			out.Lifted = append(out.Lifted, holdingOf(e))
		}
	}
	return out, nil
}

// ownedBy says that all hosts that a selector means are a caller's.
func (c *Controller) ownedBy(by caller, hosts string) bool {
	if by.Hosts == nil {
		return true
	}
	return hosts != "" && !slices.ContainsFunc(c.means(hosts, nil), func(h store.Host) bool { return !by.Hosts.Match(named(h.ID, h.Labels)) })
}

// means are the hosts of a selector, which was checked, and of only unless it is nil.
func (c *Controller) means(hosts string, only *selector.Selector) (all []store.Host) {
	var s *selector.Selector
	if hosts != "" {
		var err error
		if s, err = selector.Parse(hosts); err != nil {
			return nil
		}
	}
	for id, h := range c.view.Load().hosts {
		labels := named(id, h.Labels)
		if h.Revoked.IsZero() && (s == nil || s.Match(labels)) && (only == nil || only.Match(labels)) {
			all = append(all, h)
		}
	}
	return all
}

// holds lists what holds of a kind.
func (o operator) holds(w http.ResponseWriter, r *http.Request, kind, what, after string, limit int) {
	limit = cmp.Or(limit, mostShown)
	if limit < 1 || limit > mostShown {
		wire.Fail(w, wrong("limit is %d, and may be 1 to %d", limit, mostShown))
		return
	}
	var entries []store.Living
	var err error
	next := ""
	if what != "" {
		within, wrongly := addrset.ParseRange(what)
		if wrongly != nil {
			wire.Fail(w, wrong("%v", wrongly))
			return
		}
		var found [][]store.Living
		if found, err = o.Store.Within(r.Context(), kind, within); err == nil {
			entries = found[0]
			entries = slices.DeleteFunc(entries, func(e store.Living) bool { return e.ID <= after })
		}
	} else {
		_, entries, err = o.Store.Holding(r.Context(), kind, after, limit+1)
	}
	o.answered(err)
	if len(entries) > limit {
		entries, next = entries[:limit], entries[limit-1].ID
	}
	out := api.Holdings{Entries: []api.Holding{}, Next: next}
	means := map[string]func(store.Living) (proved, of int){}
	for _, e := range entries {
		count, has := means[e.Hosts]
		if !has && err == nil {
			count, err = o.counts(r.Context(), e.Hosts, as(r).Hosts)
			means[e.Hosts] = count
		}
		if err != nil {
			break
		}
		is := unnamed(as(r), holdingOf(e))
		if is.Proved, is.Of = count(e); is.Of > 0 || as(r).Hosts == nil {
			out.Entries = append(out.Entries, is)
		}
	}
	o.done(w, out, err)
}

// one reports what has an ID, and how it stands on each host.
func (o operator) one(w http.ResponseWriter, r *http.Request, kind, id string) {
	found, err := o.Store.Held(r.Context(), kind, id)
	o.answered(err)
	if err != nil {
		o.done(w, nil, err)
		return
	}
	of, err := o.standing(r.Context(), found.Seq, id, found.Hosts, as(r).Hosts)
	if err == nil && len(of.Hosts) == 0 && as(r).Hosts != nil {
		err = fmt.Errorf("%s %s: %w", kind, id, store.ErrNotFound) // as of one that there is not
	}
	if err != nil {
		o.done(w, nil, err)
		return
	}
	is := unnamed(as(r), holdingOf(found))
	is.Proved, is.Of = of.Proved, len(of.Hosts)
	o.done(w, &api.HoldingOn{Entry: is, Hosts: of.Hosts}, nil)
}

func (o operator) Living(w http.ResponseWriter, r *http.Request, params api.LivingParams) {
	if params.Hosts != "" {
		if _, err := selector.Parse(params.Hosts); err != nil {
			o.done(w, nil, wrong("hosts: %v", err))
			return
		}
	}
	if params.Seq < 0 {
		wire.Fail(w, wrong("seq is %d, below 0", params.Seq))
		return
	}
	of, err := o.standing(r.Context(), params.Seq, "", params.Hosts, as(r).Hosts)
	o.done(w, of, err)
}

func (o operator) Bans(w http.ResponseWriter, r *http.Request, p api.BansParams) {
	o.holds(w, r, trust.LivingBan, p.What, p.After, p.Limit)
}

func (o operator) Allows(w http.ResponseWriter, r *http.Request, p api.AllowsParams) {
	o.holds(w, r, trust.LivingAllow, p.What, p.After, p.Limit)
}

func (o operator) Ban(w http.ResponseWriter, r *http.Request)   { o.hold(w, r, trust.LivingBan) }
func (o operator) Allow(w http.ResponseWriter, r *http.Request) { o.hold(w, r, trust.LivingAllow) }

func (o operator) OneBan(w http.ResponseWriter, r *http.Request, id string) {
	o.one(w, r, trust.LivingBan, id)
}

func (o operator) OneAllow(w http.ResponseWriter, r *http.Request, id string) {
	o.one(w, r, trust.LivingAllow, id)
}

func (o operator) Unban(w http.ResponseWriter, r *http.Request) {
	o.lift(w, r, trust.LivingBan, trust.LivingUnban)
}

func (o operator) Disallow(w http.ResponseWriter, r *http.Request) {
	o.lift(w, r, trust.LivingAllow, trust.LivingDisallow)
}
