package controller

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/lists"
)

const (
	// planTime bounds how long a server and hosts are asked. Each host compiles its policy.
	planTime = 2 * time.Minute
	// plannedAtOnce is how many hosts are asked at once.
	plannedAtOnce = 16
	// mostPlanAnswer is how many bytes of a host's answer are read.
	mostPlanAnswer = 1 << 20
	mostPlanText   = 500 // bytes of what a host says
	mostPlanFlows  = 20  // of a host
	mostPlanPrefix = 100 // that come, and that go
	mostPlanBanned = 100
)

// PlanList says what a refresh of a list would change, and whom it would cut.
func (o operator) PlanList(w http.ResponseWriter, r *http.Request, list string) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(planTime + answerTime)) // the socket has none
	ctx, stop := context.WithTimeout(r.Context(), planTime)
	defer stop()
	out, err := o.planList(ctx, as(r), list)
	o.done(w, out, err)
}

func (o operator) planList(ctx context.Context, who caller, name string) (*api.ListPlan, error) {
	if !o.lists.plans.TryLock() {
		return nil, &wire.Failure{Text: "somebody else is asking what a list would change: ask again when that is done", Kind: wire.KindBusy}
	}
	defer o.lists.plans.Unlock()
	l, err := o.list(ctx, name)
	if err != nil {
		return nil, err
	}
	row := o.lists.row(l.name)
	out := &api.ListPlan{Set: l.set, Name: l.name, Planned: []api.HostListPlan{}}
	got, err := o.fetchList(ctx, l, row, false)
	var size *lists.SizeError
	if errors.As(err, &size) {
		out.Refused = size.Text
		got, err = o.fetchList(ctx, l, row, true)
	}
	if of := (*databaseError)(nil); errors.As(err, &of) {
		return nil, of.error
	}
	if err != nil {
		return nil, wrong("the list %s stays as it is: %v", l.set, err)
	}
	defer got.staging.Discard()
	come, gone := got.next.Difference(got.old), got.old.Difference(got.next)
	out.Before, out.After, out.LeftOut = prefixes(got.old), prefixes(got.next), got.left()
	out.Come, out.SomeCome = somePrefixes(come)
	out.Go, out.SomeGo = somePrefixes(gone)
	out.Unchanged = out.Come+out.Go == 0
	hosts := o.listHosts(l)
	if out.Hosts = len(hosts); out.Unchanged {
		return out, nil
	}
	if out.Bans, err = o.wouldCut(ctx, l, come); err != nil {
		return nil, err
	}
	out.Bans = out.Bans[:min(len(out.Bans), mostPlanBanned)]
	body, err := planQuestion(l.name, got.text)
	if err != nil {
		return nil, err
	}
	if len(body) > wire.MostQuestion {
		out.Unasked = "the list is too long for a question to hosts"
		return out, nil
	}
	o.planHosts(ctx, who, hosts, body, out)
	return out, nil
}

func prefixes(s addrset.Set) int {
	v4, v6 := s.CountPrefixes()
	return v4 + v6
}

// somePrefixes counts prefixes and gives the first ones.
func somePrefixes(s addrset.Set) (n int, some []string) {
	some = []string{}
	for p := range s.EachPrefix() {
		if n++; n <= mostPlanPrefix {
			some = append(some, p.String())
		}
	}
	return n, some
}

// listHosts are the hosts whose policy has a list.
func (c *Controller) listHosts(l liveList) (out []string) {
	v := c.view.Load()
	for id, h := range v.hosts {
		if h.Revoked.IsZero() && v.desired[id].Bundle != 0 && l.used(named(id, h.Labels)) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

func planQuestion(name string, text []byte) ([]byte, error) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(text)
	if err = errors.Join(err, z.Close()); err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		List string `json:"list"`
		Gzip []byte `json:"gzip"`
	}{name, packed.Bytes()})
}

// planHosts asks hosts what a list would do there.
func (c *Controller) planHosts(ctx context.Context, who caller, hosts []string, body []byte, out *api.ListPlan) {
	var mutex sync.Mutex
	sets := map[string]int64{}
	var asking errgroup.Group
	asking.SetLimit(plannedAtOnce)
	for _, host := range hosts {
		asking.Go(func() error {
			is, err := c.planHost(ctx, who, host, body)
			mutex.Lock()
			defer mutex.Unlock()
			if err != nil {
				out.Planned = append(out.Planned, api.HostListPlan{Host: host, Error: planText(err.Error())})
				return nil
			}
			out.Answered++
			for _, s := range is.Sets {
				if !s.Internal {
					add(sets, planText(s.Name), 1)
				}
			}
			if len(is.Flows) > 0 || is.LockedOut != "" {
				out.Concerned++
				out.Planned = append(out.Planned, is.of(host))
			}
			return nil
		})
	}
	_ = asking.Wait()
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		out.Sets = append(out.Sets, api.PlannedSet{Name: name, Hosts: int(sets[name])})
	}
	sorting.By(out.Planned, func(a, b api.HostListPlan) int {
		return cmp.Or(cmp.Compare(b.Ends, a.Ends), cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.LockedOut, a.LockedOut), cmp.Compare(a.Host, b.Host))
	})
	out.Planned = slices.Clip(out.Planned[:min(len(out.Planned), mostRefusing)])
}

// plannedByHost is what is read of a host's answer.
type plannedByHost struct {
	Sets []struct {
		Name     string
		Internal bool
	}
	Flows     []api.PlannedFlow
	LockedOut string `json:"locked-out"`
}

func planText(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), mostPlanText)], "")
}

func (p *plannedByHost) of(host string) api.HostListPlan {
	out := api.HostListPlan{Host: host, LockedOut: planText(p.LockedOut)}
	for _, f := range p.Flows {
		if f.Cut {
			out.Ends++
		} else {
			out.Refused++
		}
	}
	for _, f := range p.Flows[:min(len(p.Flows), mostPlanFlows)] {
		out.Flows = append(out.Flows, api.PlannedFlow{Protocol: planText(f.Protocol), From: planText(f.From), To: planText(f.To), Cut: f.Cut, By: planText(f.By)})
	}
	return out
}

// planHost asks a host.
func (c *Controller) planHost(ctx context.Context, who caller, host string, body []byte) (*plannedByHost, error) {
	if ctx.Err() != nil {
		return nil, errors.New("it was not asked: the other hosts took too long")
	}
	if err := c.able(host); err != nil {
		return nil, err
	}
	q, err := c.questions.begin(host, who.principal())
	if err != nil {
		return nil, err
	}
	in := &reply{c: c, ctx: ctx, q: q}
	defer func() { c.drop(q, in.last) }()
	if err := c.ask(q, wire.Question{Method: wire.POST, Path: "/v1/namespaces/-/lists/plan", Accept: "application/json", Body: body}); err != nil {
		return nil, err
	}
	first, err := in.next()
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(in, mostPlanAnswer))
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, errors.New("it did not answer in time")
	case err != nil:
		return nil, err
	case first.Status != http.StatusOK:
		return nil, errors.New(failureText(text))
	}
	var out plannedByHost
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("its answer cannot be read: %w", err)
	}
	return &out, nil
}
