package controller

import (
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// TestLabels: an order of the policy keys is taken as a host would take it, and the host is told,
// until another one; nothing else gives a host other labels.
func TestLabels(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	a, err := f.join("web-1", f.token(map[string]string{"role": "web"}, 1))
	ok(t, err)
	conn := a.stream(nil)
	_, err = f.publish("input: {default: drop}\n")
	ok(t, err)
	number := time.Now().UnixMilli()
	order := func(by trust.Signer, change func(*trust.LabelOrder)) []byte {
		number++
		o := trust.LabelOrder{Fleet: "example.net", Host: "web-1", Number: number, Expires: time.Now().Add(time.Hour), Labels: map[string]string{"role": "db"}}
		if change != nil {
			change(&o)
		}
		envelope, err := trust.SealLabels(o, by)
		ok(t, err)
		return envelope
	}
	db := order(f.policy, nil)
	made, err := f.client.SetLabels(t.Context(), "web-1", db)
	if err != nil || !made.Changed || made.Labels["role"] != "db" || made.Before["role"] != "web" {
		t.Fatalf("%+v, %v", made, err)
	}
	var d *wire.Desired
	told(t, a, conn, func(to *wire.Desired) bool {
		d = to
		return to.Labels != nil
	})
	labels, err := a.trust.Labels(d.Labels, "web-1", time.Now())
	if err != nil || labels["role"] != "db" {
		t.Errorf("%v, %v", labels, err)
	}
	if polled, err := a.client.Desired(t.Context()); err != nil || string(polled.Labels) != string(db) {
		t.Errorf("%+v, %v", polled, err)
	}
	// Until the host says that it has taken them it is not proved, whatever it says else.
	now := time.Now().UTC().Truncate(time.Second)
	report := wire.Report{Order: d.Order, Bundle: 1, Rollout: 1, State: wire.StateConfirmed, Running: 1, Proved: now, Verified: now, Error: "the disk is full"}
	ok(t, conn.Send(t.Context(), &wire.Message{Report: &report}))
	f.until("stale", func() bool {
		h := f.states()["web-1"]
		return h.State == api.Stale && h.Reason == "it has not taken the labels role=db yet: the disk is full"
	})
	report.Error, report.Labels, report.State = "", wire.Hash(db), wire.StateFetched
	ok(t, conn.Send(t.Context(), &wire.Message{Report: &report}))
	f.until("stale still", func() bool {
		h := f.states()["web-1"]
		return h.State == api.Stale && h.Reason == "bundle 1 is fetched again, and its earlier version for this host is in force"
	})
	report.State = wire.StateConfirmed
	ok(t, conn.Send(t.Context(), &wire.Message{Report: &report}))
	f.until("proved", func() bool { h := f.states()["web-1"]; return h.State == api.Proved && h.Labels["role"] == "db" })

	if made, err = f.client.SetLabels(t.Context(), "web-1", db); err != nil || made.Changed {
		t.Errorf("%+v, %v", made, err)
	}
	for want, bad := range map[string][]byte{
		"not signed by a key of this fleet; a new root.json comes with the next bundle": order(newKey(t), nil),
		"the order is of host web-2, and not of web-1":                                  order(f.policy, func(o *trust.LabelOrder) { o.Host = "web-2" }),
		"of another fleet":      order(f.policy, func(o *trust.LabelOrder) { o.Fleet = "example.org" }),
		"sign the labels again": order(f.policy, func(o *trust.LabelOrder) { o.Number = 5 }),
		"expired":               order(f.policy, func(o *trust.LabelOrder) { o.Expires = time.Now().Add(-time.Hour) }),
		"is no name of a label": order(f.policy, func(o *trust.LabelOrder) { o.Labels = map[string]string{"a b": ""} }),
		"malformed":             []byte("{}"),
		"is too large: 1048576": make([]byte, 1<<20),
	} {
		if made, err := f.client.SetLabels(t.Context(), "web-1", bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", want, made, err)
		}
	}
	if _, err := f.client.SetLabels(t.Context(), "web-9", order(f.policy, func(o *trust.LabelOrder) { o.Host = "web-9" })); err == nil || !strings.Contains(err.Error(), "web-9") {
		t.Error(err)
	}
	if h := f.states()["web-1"]; h.Labels["role"] != "db" {
		t.Errorf("%+v", h)
	}

	// Back again is another order, and a controller that begins goes on with it.
	web := order(f.policy, func(o *trust.LabelOrder) { o.Labels = map[string]string{"role": "web"} })
	_, err = f.client.SetLabels(t.Context(), "web-1", web)
	ok(t, err)
	told(t, a, conn, func(to *wire.Desired) bool { return string(to.Labels) == string(web) })
	ok(t, f.stop())
	f.run()
	if d, err := a.client.Desired(t.Context()); err != nil || string(d.Labels) != string(web) {
		t.Errorf("%+v, %v", d, err)
	}
}
