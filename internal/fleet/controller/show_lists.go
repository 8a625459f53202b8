package controller

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"sluice/internal/base/fetch"
	"sluice/internal/base/sorting"
	"sluice/internal/fleet/api"
)

func (o operator) Lists(w http.ResponseWriter, r *http.Request) {
	v := o.view.Load()
	wanted, err := o.wantedLists(r.Context(), v)
	if err != nil {
		o.done(w, nil, err)
		return
	}
	out := &api.LiveLists{Lists: []api.LiveListState{}}
	for _, l := range wanted {
		out.Lists = append(out.Lists, o.listState(v, l, as(r)))
	}
	sorting.By(out.Lists, func(a, b api.LiveListState) int { return strings.Compare(a.Set+" "+a.Name, b.Set+" "+b.Name) })
	o.done(w, out, nil)
}

func (o operator) RefreshList(w http.ResponseWriter, r *http.Request, list string) {
	how, fine := in[api.ListRefresh](w, r)
	if !fine {
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(planTime + answerTime)) // a list may come slowly
	l, err := o.Controller.RefreshList(r.Context(), as(r).Who, list, asked{force: how.Force, allowCut: how.AllowCut})
	o.done(w, o.listState(o.view.Load(), l, as(r)), err)
}

func (o operator) UndoList(w http.ResponseWriter, r *http.Request, list string) {
	l, err := o.Controller.UndoList(r.Context(), as(r).Who, list)
	o.done(w, o.listState(o.view.Load(), l, as(r)), err)
}

// mostRefusing is how many hosts are named that do not take a list.
const mostRefusing = 100

// listState is where a list is, on the hosts that somebody may see.
func (c *Controller) listState(v *view, l liveList, who caller) api.LiveListState {
	row := c.lists.row(l.name)
	out := api.LiveListState{
		Set: l.set, Name: l.name, Url: fetch.Redact(l.url), RefreshSeconds: int(l.refresh.Seconds()), Sha256: row.SHA256, Prefixes: row.Prefixes, LeftOut: row.Left,
		Changed: row.Changed, Checked: row.Checked, Failing: row.Failing, Failure: row.Failure, Undone: row.Undone,
	}
	if !row.Undone {
		out.Next = row.Next
	}
	c.statuses.mutex.Lock()
	defer c.statuses.mutex.Unlock()
	for id, h := range v.hosts {
		if !h.Revoked.IsZero() || v.desired[id].Bundle == 0 || !who.sees(id, h.Labels) || !l.used(named(id, h.Labels)) {
			continue
		}
		out.Hosts++
		k := c.statuses.of[id]
		if k == nil {
			continue
		}
		for _, is := range k.report.Lists {
			switch {
			case is.Name != l.name:
			case is.Error != "":
				out.Refused = append(out.Refused, api.ListRefusal{Host: id, Why: is.Error})
			case is.Sha256 == row.SHA256 && row.SHA256 != "":
				out.Proved++
			}
		}
	}
	sorting.By(out.Refused, func(a, b api.ListRefusal) int { return strings.Compare(a.Host, b.Host) })
	out.Refused = slices.Clip(out.Refused[:min(len(out.Refused), mostRefusing)])
	return out
}
