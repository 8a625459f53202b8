package controller

import (
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// TestOlderLevel: a host whose agent reads an older level of the language than a bundle is written
// in is named before anything is pushed to it, with the fix, and is told of the bundle once its
// agent is newer.
func TestOlderLevel(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	old, err := f.join("web-1", f.token(map[string]string{"role": "web"}, 1))
	ok(t, err)
	conn := old.stream(nil) // which says level 1
	signed, err := f.repository.Sign(trust.Signing{Level: 2, File: f.file("fleet.yaml", "", f.text), Parts: []trust.File{f.file("parts/10-base.yaml", "", "version: 1\ninput: {default: drop}\n")}}, time.Now(), f.policy)
	ok(t, err)
	made, err := f.give(signed.Bundle.Number)
	ok(t, err)
	f.until("it is named", func() bool {
		is, err := f.client.Rollout(t.Context(), made.ID)
		ok(t, err)
		for _, l := range is.State.LeftOut {
			if l.Host == "web-1" && strings.Contains(l.Reason, "reads language level 1 and the bundle is written in 2: it takes the bundle once sluice is upgraded there") {
				return true
			}
		}
		return false
	})
	if d, err := old.client.Desired(t.Context()); err != nil || d.Bundle != 0 || f.states()["web-1"].State != api.None {
		t.Errorf("%+v, %v", d, err)
	}
	conn.Cut()
	f.until("offline", func() bool { return !f.states()["web-1"].Online })
	newer, err := wire.Dial(t.Context(), old.client.HTTP, old.client.Base)
	ok(t, err)
	defer newer.Cut()
	ok(t, newer.Send(t.Context(), &wire.Message{Hello: &wire.Hello{Version: "2", LanguageLevel: 2, Instance: "newer"}}))
	d := told(t, old, newer, func(d *wire.Desired) bool { return d.Bundle == signed.Bundle.Number })
	if d.Rollout != made.ID {
		t.Errorf("%+v, and %+v", d, made)
	}
}
