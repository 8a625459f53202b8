package controller

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
)

// TestRollOutGoesOn: who asks for a roll-out and goes leaves nothing that is signed and not published.
func TestRollOutGoesOn(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	f.text += "signing: controller\n"
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
	d, err := f.controller.Store.Propose(t.Context(), store.Draft{ID: "a", Who: "user:erika", Bundle: 1, Texts: map[string]string{"parts/20.yaml": "version: 1\n"}})
	ok(t, err)
	ctx, leave := context.WithCancel(context.WithValue(t.Context(), callerKey{}, caller{Who: "user:erika", Role: api.Admin}))
	signs := false
	f.controller.Sign = func(ctx context.Context, _ string) (*api.Publish, error) {
		signs = true
		leave()
		_, limited := ctx.Deadline()
		if ctx.Err() != nil || !limited {
			t.Errorf("it is signed with who has gone: %v, bounded %t", ctx.Err(), limited)
		}
		return &api.Publish{}, ctx.Err()
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/api/v1/drafts/"+d.ID+"/roll-out", strings.NewReader("{}"))
	f.controller.operations().ServeHTTP(httptest.NewRecorder(), r)
	if !signs {
		t.Error("nothing is signed")
	}
}
