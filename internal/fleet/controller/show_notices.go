package controller

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/notices"
	"sluice/internal/fleet/store"
)

func (o operator) Notices(w http.ResponseWriter, r *http.Request, params api.NoticesParams) {
	out := &api.Notices{Notices: []api.NoticeState{}, Receivers: []api.ReceiverState{}, Changed: o.fileChanged(), Wrong: o.fileWrong()}
	all, err := o.Store.Notices(r.Context(), params.Ended)
	var told []store.Told
	if err == nil {
		told, err = o.Store.Told(r.Context())
	}
	var rows []store.Receiver
	if err == nil {
		rows, err = o.Store.Receivers(r.Context())
	}
	if err != nil {
		o.done(w, nil, err)
		return
	}
	of := map[int64][]api.NoticeTold{}
	for _, is := range told {
		of[is.Notice] = append(of[is.Notice], api.NoticeTold{Receiver: is.Receiver, Event: is.Event, At: is.At})
	}
	for _, n := range all {
		is := api.NoticeState{Number: n.Number, Kind: n.Kind, Subject: n.Subject, Text: n.Text, Since: n.Since, Ended: n.Ended, Told: of[n.Number]}
		if n.Ended.IsZero() {
			is.Away = n.Gone
		}
		if is.Told == nil {
			is.Told = []api.NoticeTold{}
		}
		out.Notices = append(out.Notices, is)
	}
	for _, to := range o.receivers() {
		is := api.ReceiverState{Name: to.Name, How: to.How()}
		for _, row := range rows {
			if row.Name != to.Name {
				continue
			}
			is.Sent, is.Failed, is.At, is.Failing, is.Failure, is.Next = row.Sent, row.Failed, row.At, row.Failing, row.Failure, row.Next
			due, err := o.unheard(r.Context(), to, row)
			if err != nil {
				o.done(w, nil, err)
				return
			}
			is.Waiting = len(due)
		}
		out.Receivers = append(out.Receivers, is)
	}
	o.done(w, out, nil)
}

// receivers are those of the file.
func (c *Controller) receivers() (all []*notices.Receiver) {
	if c.Options.Notices == nil {
		return nil
	}
	for i := range c.Options.Notices.Receivers {
		all = append(all, &c.Options.Notices.Receivers[i])
	}
	return all
}

// fileChanged says that the controller has to start again for its file of receivers.
func (c *Controller) fileChanged() bool {
	return c.Options.Notices != nil && c.Options.Notices.Changed(c.Dir)
}

// fileWrong is what is wrong with that file, as it was read.
func (c *Controller) fileWrong() string {
	if c.Options.Notices == nil {
		return ""
	}
	return c.Options.Notices.Wrong
}

// testEvery is how often receivers are sent a test, longer than one takes.
const testEvery = notices.MostTime + 5*time.Second

// mayTest says whether it is time for another test, which the caller then sends.
func (n *noticing) mayTest(now time.Time) bool {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if !n.tested.IsZero() && now.Sub(n.tested) < testEvery {
		return false
	}
	n.tested = now
	return true
}

// TestNotices tells all receivers at once, so that one that hangs holds up no other.
func (o operator) TestNotices(w http.ResponseWriter, r *http.Request) {
	all, now := o.receivers(), o.Now()
	if !o.noticing.mayTest(now) {
		busy(w, fmt.Sprintf("a test was sent just now: one is sent in %s at most", testEvery))
		return
	}
	if err := o.Store.NoticesTested(r.Context(), as(r).Who, len(all)); err != nil {
		o.done(w, nil, err)
		return
	}
	out := &api.TestedNotices{Receivers: make([]api.TestedReceiver, len(all)), Changed: o.fileChanged()}
	m := notices.NewMessage(o.Fleet(), []notices.Notice{{Event: notices.Test, Kind: "test", Subject: o.Fleet(), Text: "a test, which " + as(r).Who + " asked for", Since: now}})
	var telling sync.WaitGroup
	for i, to := range all {
		telling.Go(func() {
			is := api.TestedReceiver{Name: to.Name, How: to.How()}
			var err error
			if is.Said, err = to.Send(r.Context(), m); err != nil {
				is.Failure = err.Error()
			}
			out.Receivers[i] = is
		})
	}
	telling.Wait()
	o.done(w, out, nil)
}
