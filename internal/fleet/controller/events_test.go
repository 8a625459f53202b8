package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/wire"
)

// reads is a stream of events that somebody has open.
type reads struct {
	mutex sync.Mutex
	got   []api.Event
	ended chan error
	end   context.CancelFunc
}

func (f *fleet) events(c *api.Client, after string) *reads {
	ctx, cancel := context.WithCancel(f.Context())
	s := &reads{ended: make(chan error, 1), end: cancel}
	f.Cleanup(cancel)
	go func() {
		s.ended <- c.Events(ctx, after, func(e api.Event) error {
			s.mutex.Lock()
			defer s.mutex.Unlock()
			s.got = append(s.got, e)
			return nil
		})
	}()
	return s
}

// all are the events of a kind, as text.
func (s *reads) all(kind string) (texts []string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, e := range s.got {
		if e.Kind == kind {
			texts = append(texts, string(e.Data))
		}
	}
	return texts
}

// texts are all events.
func (s *reads) texts() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return fmt.Sprintf("%s", s.got)
}

func (s *reads) has(kind, want string) bool {
	return strings.Contains(strings.Join(s.all(kind), "\n"), want)
}

// TestEvents: who reads them hears of each change once, of hosts that they may see, and goes
// on where they were.
func TestEvents(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	token, made, err := f.access(f.client, "prod", api.Viewer, "env=prod")
	ok(t, err)
	all, prod := f.events(f.client, ""), f.events(f.elsewhere(token), "")
	f.until("both are there", func() bool { return len(all.all("reset")) == 1 && len(prod.all("reset")) == 1 })
	var web []*agent
	for host, env := range map[string]string{"web-1": "prod", "web-2": "test"} {
		a, err := f.join(host, f.token(map[string]string{"env": env}, 1))
		ok(t, err)
		web = append(web, a)
	}
	f.until("hosts", func() bool {
		return all.has("host", `"host":"web-1"`) && all.has("host", `"host":"web-2"`) && prod.has("host", `"host":"web-1"`)
	})
	for _, a := range web {
		go a.obey(a.stream(nil))
	}
	f.until("online", func() bool { return prod.has("host", `"online":true`) })
	f.text += "roll-out: {stages: [100%], settle: none}\n"
	_, err = f.publish("input: {default: drop}\n")
	ok(t, err)
	f.until("the roll-out", func() bool { return all.has("rollout", `"phase":"done"`) && prod.has("rollout", `"phase":"done"`) })
	f.until("proved", func() bool { return prod.has("host", `"state":"proved"`) })
	if prod.has("host", "web-2") || prod.has("rollout", "reason") || !all.has("rollout", "reason") {
		t.Errorf("who sees env=prod is told %v %v", prod.all("host"), prod.all("rollout"))
	}
	seen := map[string]bool{}
	for _, e := range all.got {
		if seen[e.ID] || !json.Valid(e.Data) {
			t.Errorf("%+v comes twice, or is no JSON", e)
		}
		seen[e.ID] = true
	}

	last := all.got[len(all.got)-1]
	all.end()
	if err := <-all.ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	ok(t, f.client.Revoke(t.Context(), "web-2", "sold"))
	again := f.events(f.client, last.ID)
	f.until("what was missed", func() bool { return again.has("host-gone", "web-2") })
	if len(again.all("reset")) != 0 || prod.has("host-gone", "web-2") {
		t.Errorf("%+v", again.got)
	}
	for _, id := range []string{"x", "other-1", last.ID[:strings.Index(last.ID, "-")] + "-99999"} {
		other := f.events(f.client, id)
		f.until("a reset", func() bool { return len(other.all("reset")) == 1 })
		other.end()
	}
	ok(t, f.client.WithdrawAccess(t.Context(), made.Id))
	who := caller{Who: "token:prod", session: made.Id}
	r := request("GET", "/api/v1/events", "", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	if _, err := (operator{f.controller}).still(r, who); kind(err) != wire.KindUnknownCaller {
		t.Errorf("a stream goes on by a token that was withdrawn: %v", err)
	}
}

// TestEventsAreBounded: nobody has more streams than some, by several tokens neither, and who is
// slow is told so.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	token, _, err := f.access(f.client, "ci", api.Viewer, "")
	ok(t, err)
	c := f.elsewhere(token)
	second, _, err := f.access(f.client, "CI", api.Viewer, "")
	ok(t, err)
	again := f.elsewhere(second)
	var open []*reads
	for i := range mostOfOne {
		s := f.events([]*api.Client{c, again}[i%2], "")
		f.until("it is open", func() bool { return len(s.all("reset")) == 1 })
		open = append(open, s)
	}
	for _, c := range []*api.Client{c, again} {
		if err := c.Events(t.Context(), "", func(api.Event) error { return errors.New("it is open") }); kind(err) != wire.KindBusy {
			t.Errorf("one more: %v", err)
		}
	}
	open[0].end()
	f.until("it is left", func() bool {
		return c.Events(t.Context(), "", func(api.Event) error { return context.Canceled }) == context.Canceled //nolint:errorlint // it is that
	})
	e := &events{}
	e.init("x")
	for i := range 3 * mostEvents {
		e.last++
		e.kept = append(e.kept, event{all: fmt.Append(nil, i)})
		e.kept = e.kept[max(0, len(e.kept)-mostEvents):]
	}
	if _, reaches := e.behind(0); reaches {
		t.Error("what is not kept is told of")
	}
	if news, reaches := e.behind(e.last - 2); !reaches || len(news) != 2 {
		t.Errorf("%v %v", news, reaches)
	}
}
