package fleetbench

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/controller"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
)

// TestSimulatedHostsFollow has simulated hosts enrol with a controller and take two changes.
func TestSimulatedHostsFollow(t *testing.T) {
	t.Parallel()
	const hosts = 5
	f := &fleet{bench: &bench{Context: t.Context(), dir: t.TempDir()}}
	ok(t, f.founded())
	s, err := store.Open(t.Context(), "sqlite:"+f.path("fleet.db"))
	ok(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	c, err := controller.New(t.Context(), controller.Options{Dir: f.controllerDir(), Store: s, Controllers: []string{l.Addr().String()}, Note: func(err error) { t.Log(err) }})
	ok(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(c.Run(ctx, l), s.Close()) }()
	t.Cleanup(func() {
		stop()
		ok(t, <-ended)
	})
	f.client = api.NewClient(f.controllerDir())
	ok(t, f.until(time.Minute, "the controller answers", func() (bool, error) {
		_, err := f.client.Status(f)
		return err == nil, nil
	}))
	ok(t, f.allow())
	orders, in := io.Pipe()
	out, progress := io.Pipe()
	sim := &simulated{}
	simulating := make(chan error, 1)
	go func() {
		simulating <- Simulate(t.Context(), orders, progress)
		ok(t, progress.Close())
	}()
	go sim.follow(out)
	ok(t, json.NewEncoder(in).Encode(Order{
		Hosts: hosts, Controller: l.Addr().String(), Token: f.token, Dir: t.TempDir(), Facts: []byte(`{"addresses":["198.51.100.11"]}`), Address: "198.51.100.11",
		Took: []Took{{Load: time.Millisecond}},
	}))
	ok(t, f.until(time.Minute, "all are connected", func() (bool, error) {
		s, err := f.client.Status(f)
		return err == nil && s.Online == hosts, err
	}))
	for range 2 {
		_, r, err := f.publish()
		ok(t, err)
		ok(t, f.until(time.Minute, "all have confirmed the bundle", func() (bool, error) { return sim.confirmed(r.Bundle) == hosts, sim.failed() }))
	}
	ok(t, f.await(hosts))
	took, err := f.ban("", hosts)
	ok(t, err)
	if is := sim.lived("one"); len(took) != hosts || took[0] <= 0 || is.Bans != hosts || is.All < is.Half || is.Half <= 0 {
		t.Errorf("a ban took %v, and as the hosts say %+v", took, is)
	}
	if sim.reverted() != 0 {
		t.Errorf("%d hosts went back", sim.reverted())
	}
	ok(t, in.Close())
	ok(t, <-simulating)
}

// TestTook has a host pass the states of a bundle, one of which nobody saw.
func TestTook(t *testing.T) {
	t.Parallel()
	h := &host{when: map[wire.State]time.Time{}}
	begin := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	h.saw(wire.Report{Bundle: 1, Rollout: 1, State: wire.StateConfirmed}, begin)
	for i, s := range []wire.State{wire.StateNone, wire.StatePending, wire.StateConfirmed} {
		h.saw(wire.Report{Bundle: 2, Rollout: 2, State: s}, begin.Add(time.Duration(1+i*i)*time.Second))
	}
	if got, want := h.took(), (Took{Load: time.Second, Confirm: 3 * time.Second}); got != want {
		t.Errorf("%+v, not %+v", got, want)
	}
	delete(h.when, wire.StatePending)
	if got, want := h.took(), (Took{Load: 4 * time.Second}); got != want {
		t.Errorf("without a state: %+v, not %+v", got, want)
	}
	h.saw(wire.Report{Bundle: 2, Rollout: 2, State: wire.StateReverted}, begin)
	if h.failed() == nil || h.reverted() != 1 {
		t.Error("a host that went back is not counted")
	}
}

func TestAt(t *testing.T) {
	t.Parallel()
	var sorted []float64
	for i := range 1000 {
		sorted = append(sorted, float64(i+1))
	}
	for share, want := range map[float64]float64{0.5: 500, 0.99: 990, 1: 1000} {
		if got := at(sorted, share); got != want {
			t.Errorf("%v of them are below %v, not %v", share, got, want)
		}
	}
	if got := at(sorted[:1], 0.5); got != 1 {
		t.Errorf("of one: %v", got)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
