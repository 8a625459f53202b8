package controller

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sluice/internal/fleet/wire"
)

// TestVerifyAudit: the audit is intact until somebody changes an entry or cuts its end off, and what was
// kept elsewhere is held against it.
func TestVerifyAudit(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
	is, err := f.client.VerifyAudit(t.Context(), "")
	ok(t, err)
	if !is.Whole || is.BrokenAt != 0 || len(is.Findings) != 0 || is.Entries < 2 {
		t.Errorf("%+v", is)
	}
	kept := is.Head
	if is, err := f.client.VerifyAudit(t.Context(), kept); err != nil || !is.Whole {
		t.Errorf("%+v, %v", is, err)
	}
	seq, hash, _ := strings.Cut(kept, ":")
	for _, head := range []string{"x", "1", seq + ":" + hash[1:]} {
		if _, err := f.client.VerifyAudit(t.Context(), head); kind(err) != wire.KindBadRequest {
			t.Errorf("%q: %v", head, err)
		}
	}
	if is, err := f.client.VerifyAudit(t.Context(), seq+":"+strings.Repeat("0", 64)); err != nil || is.Whole || !strings.Contains(strings.Join(is.Findings, " "), "somebody kept it") {
		t.Errorf("another head: %+v, %v", is, err)
	}
	leave, err := f.controller.verifying.turns.Take(t.Context(), "token:other")
	ok(t, err)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.controller.verifying.look(gone, operator{f.controller}, caller{}, "", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("who has gone waits: %v", err)
	}
	leave()
	f.tamper(`update audit set who = 'user:eve' where seq = 2`)
	is, err = f.client.VerifyAudit(t.Context(), kept)
	if err != nil || is.Whole || is.BrokenAt != 2 || !strings.Contains(is.Findings[0], "entry 2 was changed") {
		t.Errorf("a changed entry: %+v, %v", is, err)
	}
}
