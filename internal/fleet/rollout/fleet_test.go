package rollout

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 11, 2, 9, 0, 0, 0, time.UTC) // a Monday

// fleet is hosts that do what a test says, and one roll-out of bundle 5 over bundle 4.
type fleet struct {
	t    *testing.T
	r    Rollout
	seen map[string]Seen
	now  time.Time
}

func newFleet(t *testing.T, plan Plan, classes ...string) *fleet {
	f := &fleet{t: t, now: start, seen: map[string]Seen{}}
	for i, class := range classes {
		f.seen[fmt.Sprintf("%s-%d", class, i+1)] = Seen{Class: class, Level: 1, Online: true, Proved: true, Running: 4}
	}
	f.r = New(5, plan, f.now)
	f.r.ID = 1
	f.do(Command{Kind: Check, Who: "ann"})
	f.do(Command{Kind: Sign, Who: "ann"})
	return f
}

func quick() Plan {
	p := DefaultPlan()
	p.Stages = []Stage{{PerClass: 1}, {Percent: 50}, {Percent: 100}}
	return p
}

func (f *fleet) do(c Command) {
	f.t.Helper()
	r, err := f.r.Do(c, f.now)
	if err != nil {
		f.t.Fatal(err)
	}
	f.r = r
}

// step returns the orders as text: "web-1=5", "web-1?5" for a prefetch.
func (f *fleet) step() string {
	f.t.Helper()
	was := f.r
	var text []string
	var orders []Order
	f.r, orders = f.r.Step(f.seen, f.now)
	for _, o := range orders {
		sign := "?"
		if !o.Prefetch {
			sign = "="
			s := f.seen[o.Host]
			s.Ordered = f.r.ID
			f.seen[o.Host] = s
		}
		text = append(text, fmt.Sprintf("%s%s%d", o.Host, sign, o.Bundle))
	}
	if was.ID == 0 {
		f.t.Fatal("no id")
	}
	again, more := f.r.Step(f.seen, f.now)
	if len(more) > 0 || again.Changed(f.r) {
		f.t.Fatalf("not idempotent: %v\n%+v\n%+v", more, f.r.State, again.State)
	}
	kept, err := json.Marshal(f.r)
	if err != nil {
		f.t.Fatal(err)
	}
	var read Rollout
	if err := json.Unmarshal(kept, &read); err != nil || !reflect.DeepEqual(read, f.r) {
		f.t.Fatalf("JSON: %v\n%+v\n%+v", err, read, f.r)
	}
	return strings.Join(text, " ")
}

func (f *fleet) says(host string, state HostState, why string) {
	s := f.seen[host]
	bundle := f.r.State.Hosts[host].Target
	s.Report = Report{Rollout: 1, Bundle: bundle, State: state, Error: why, At: f.now}
	if state == Confirmed {
		s.Running, s.Proved = bundle, true
	}
	f.seen[host] = s
}

func (f *fleet) set(host string, change func(*Seen)) {
	s := f.seen[host]
	change(&s)
	f.seen[host] = s
}

// confirm has every host that was told something confirm it.
func (f *fleet) confirm() {
	for id := range f.r.State.Hosts {
		f.says(id, Confirmed, "")
	}
}

func (f *fleet) wants(orders string, phase Phase, reason string) {
	f.t.Helper()
	if got := f.step(); got != orders {
		f.t.Errorf("orders %q, want %q", got, orders)
	}
	if f.r.State.Phase != phase || !strings.Contains(f.r.State.Reason, reason) {
		f.t.Errorf("%s: %s; want %s: …%s…", f.r.State.Phase, f.r.State.Reason, phase, reason)
	}
}

func (f *fleet) wait(d time.Duration) { f.now = f.now.Add(d) }
