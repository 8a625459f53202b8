package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/notices"
	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/store"
)

// eventEvery is how often it is looked what has changed, while somebody wants to know.
const eventEvery = 500 * time.Millisecond

const (
	mostEvents  = 4096 // that are kept for whoever comes again, or is slow
	mostStreams = 200  // that are open at once
	mostOfOne   = 10   // of one principal
)

// Streams are written to within eventWrite; each eventBeat shows that they live, and whether
// who reads may go on.
const (
	eventWrite = 10 * time.Second
	eventBeat  = 15 * time.Second
)

// events are what has changed. Each is recorded once, whoever reads it.
type events struct {
	boot string // tells the numbers of this controller from others'

	mutex  sync.Mutex
	last   int64
	kept   []event // the newest, up to last
	more   chan struct{}
	open   map[string]int // streams, by principal
	ended  chan struct{}
	once   sync.Once           // of it
	hosts  map[string]api.Host // as they were told of
	routed map[int64]api.RolloutEvent
	bans   int64
	noted  map[int64]store.Notice
}

type event struct {
	host   string // "": of none
	labels map[string]string
	all    []byte // for whoever sees all hosts
	some   []byte // for whoever sees some, or this one
}

func (e *events) init(boot string) {
	e.boot, e.more, e.ended, e.open = boot, make(chan struct{}), make(chan struct{}), map[string]int{}
}

// lookForEvents compares what is with what was told.
func (c *Controller) lookForEvents(ctx context.Context) {
	for range ticks(ctx, eventEvery) {
		c.events.mutex.Lock()
		if len(c.events.open) > 0 {
			c.compare()
		}
		c.events.mutex.Unlock()
	}
}

// compare is called with the mutex.
func (c *Controller) compare() {
	e, v, online := &c.events, c.view.Load(), c.hub.Online()
	first := e.hosts == nil
	hosts := map[string]api.Host{}
	var made []event
	tell := func(kind, host string, labels map[string]string, all, some any) {
		e.last++
		made = append(made, event{host, labels, e.text(kind, all), e.text(kind, some)})
	}
	for id, h := range v.hosts {
		if !h.Revoked.IsZero() {
			continue
		}
		is := c.picture(h, v, online)
		is.Seen, is.Verified = time.Time{}, time.Time{} // which change all the time
		was, has := e.hosts[id]
		hosts[id] = is
		if !has || !reflect.DeepEqual(is, was) {
			tell("host", id, h.Labels, is, is)
		}
	}
	for id, was := range e.hosts {
		if _, has := hosts[id]; !has {
			gone := api.HostGone{Host: id}
			tell("host-gone", id, was.Labels, gone, gone)
		}
	}
	rollouts := map[int64]api.RolloutEvent{}
	c.driver.moving.Lock()
	for _, d := range c.driver.open {
		rollouts[d.ID] = rolloutEvent(d.Rollout)
	}
	c.driver.moving.Unlock()
	for id, is := range rollouts {
		if is != e.routed[id] {
			hidden := is
			hidden.Reason = ""
			tell("rollout", "", nil, is, hidden)
		}
	}
	c.living.mutex.Lock()
	seq := c.living.at.Seq
	c.living.mutex.Unlock()
	if seq != e.bans {
		is := api.BansEvent{Seq: seq}
		tell("bans", "", nil, is, is)
	}
	noted := c.tellNotices(v, tell)
	e.hosts, e.routed, e.bans, e.noted = hosts, rollouts, seq, noted
	if first { // who comes asks for what is; events are what follows
		e.last = 0
		return
	}
	if len(made) > 0 {
		e.kept = append(e.kept, made...)
		e.kept = append([]event(nil), e.kept[max(0, len(e.kept)-mostEvents):]...)
		close(e.more)
		e.more = make(chan struct{})
	}
}

// tellNotices reports notices that have begun or ended, and returns those that are open.
func (c *Controller) tellNotices(v *view, tell func(kind, host string, labels map[string]string, all, some any)) map[int64]store.Notice {
	noted := map[int64]store.Notice{}
	said := func(n store.Notice, event notices.Event) {
		is := api.NoticeEvent{Number: n.Number, Event: string(event), Kind: n.Kind, Subject: n.Subject, Text: n.Text, Since: n.Since}
		switch notices.Kind(n.Kind) {
		case notices.Drift, notices.Refused, notices.Certificate:
			tell("notice", n.Subject, v.hosts[n.Subject].Labels, is, is)
		default:
			hidden := is
			hidden.Text = ""
			tell("notice", "", nil, is, hidden)
		}
	}
	for _, n := range c.openNotices() {
		noted[n.Number] = n
		if _, has := c.events.noted[n.Number]; !has {
			said(n, notices.Begins)
		}
	}
	for number, n := range c.events.noted {
		if _, has := noted[number]; !has {
			said(n, notices.Ended)
		}
	}
	return noted
}

func rolloutEvent(r rollout.Rollout) api.RolloutEvent {
	return api.RolloutEvent{Rollout: r.ID, Bundle: r.Bundle, Phase: string(r.State.Phase), Stage: r.State.Stage, Reason: r.State.Reason, Since: r.State.Since}
}

// text is an event as it is sent, by the number that it gets.
func (e *events) text(kind string, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		data = []byte("{}")
	}
	return fmt.Appendf(nil, "id: %s-%d\nevent: %s\ndata: %s\n\n", e.boot, e.last, kind, data)
}

// behind are the events behind a number; false where they are not kept any more.
func (e *events) behind(n int64) ([]event, bool) {
	since := e.last - n
	if since < 0 || since > int64(len(e.kept)) {
		return nil, false
	}
	return e.kept[int64(len(e.kept))-since:], true
}

// begin begins a stream of a principal.
func (e *events) begin(principal string) bool {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	all := 0
	for _, n := range e.open {
		all += n
	}
	if all >= mostStreams || principal != "" && e.open[principal] >= mostOfOne {
		return false
	}
	e.open[principal]++
	return true
}

// end ends all streams.
func (e *events) end() { e.once.Do(func() { close(e.ended) }) }

func (e *events) leave(principal string) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if e.open[principal]--; e.open[principal] == 0 {
		delete(e.open, principal)
	}
}

// Events is the stream of them.
func (o operator) Events(w http.ResponseWriter, r *http.Request, params api.EventsParams) {
	who, e := as(r), &o.events
	if !e.begin(who.principal()) {
		busy(w, fmt.Sprintf("%s has %d streams of events open, or there are %d in all", who.Who, mostOfOne, mostStreams))
		return
	}
	defer e.leave(who.principal())
	w = lasting{w, eventWrite}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)

	e.mutex.Lock()
	o.compare() // what is asked for from now on is not older
	at := e.last
	boot, text, _ := strings.Cut(params.LastEventID, "-")
	n, err := strconv.ParseInt(text, 10, 64)
	known := err == nil && boot == e.boot
	if known {
		_, known = e.behind(n)
	}
	e.mutex.Unlock()
	var out bytes.Buffer
	if known {
		at = n
	} else {
		reset(&out, e.boot, at)
	}
	beat := time.NewTicker(eventBeat)
	defer beat.Stop()
	for {
		e.mutex.Lock()
		news, reaches := e.behind(at)
		at = e.last
		more := e.more
		e.mutex.Unlock()
		if !reaches { // it was too slow
			reset(&out, e.boot, at)
		}
		for _, is := range news {
			switch {
			case who.Hosts == nil:
				out.Write(is.all)
			case is.host == "" || who.sees(is.host, is.labels):
				out.Write(is.some)
			}
		}
		if out.Len() > 0 {
			if _, err := w.Write(out.Bytes()); err != nil || rc.Flush() != nil {
				return
			}
			out.Reset()
		}
		select {
		case <-more:
		case <-beat.C:
			if who, err = o.still(r, who); err != nil {
				return
			}
			out.WriteString(": \n\n")
		case <-r.Context().Done():
			return
		case <-e.ended:
			return
		}
	}
}

// reset has a reader ask again for what is.
func reset(out *bytes.Buffer, boot string, at int64) {
	fmt.Fprintf(out, "id: %s-%d\nevent: reset\ndata: {}\n\n", boot, at)
}

// still is who asks, as far as they may go on.
func (o operator) still(r *http.Request, who caller) (caller, error) {
	if who.session == "" {
		return who, nil
	}
	now, err := o.identify(r)
	if err != nil {
		return who, err
	}
	now, may := now.to(api.Viewer)
	if !may {
		return now, unpermitted("%s may read no more", now.Who)
	}
	return now, nil
}
