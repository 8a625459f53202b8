package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"sluice/internal/base/addrset"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
)

// wire is a host whose answers have gone through JSON, as those of another process have.
type wire struct{ *engine.Host }

// wired is the copy of an answer, read strictly, which says in JSON what the answer says.
func wired[T any](v T, failed error) (out T, err error) {
	sent, err := json.Marshal(v)
	if err != nil {
		return out, err
	}
	in := json.NewDecoder(bytes.NewReader(sent))
	in.DisallowUnknownFields()
	if err := in.Decode(&out); err != nil {
		return out, fmt.Errorf("%T does not survive JSON: %w\n%s", v, err, sent)
	}
	again, err := json.Marshal(out)
	if err == nil && !bytes.Equal(sent, again) {
		err = fmt.Errorf("%T does not survive JSON:\n%s\n%s", v, sent, again)
	}
	if failed != nil {
		err = failed
	}
	return out, err
}

func (w wire) Status(ctx context.Context, contents bool) (*apply.Status, error) {
	return wired(w.Host.Status(ctx, contents))
}

func (w wire) Verify(ctx context.Context, against *engine.Subject, own bool) (*engine.Verified, error) {
	return wired(w.Host.Verify(ctx, against, own))
}

func (w wire) History() (*apply.History, error) { return wired(w.Host.History()) }

func (w wire) Text(generation int) (*apply.Text, error) { return wired(w.Host.Text(generation)) }

func (w wire) Bans(ctx context.Context) ([]apply.BanEntry, error) { return wired(w.Host.Bans(ctx)) }

func (w wire) Ban(ctx context.Context, in apply.Banning) (*apply.Banned, error) {
	return wired(w.Host.Ban(ctx, in))
}

func (w wire) Unban(ctx context.Context, what []addrset.Range) (*apply.Banned, error) {
	return wired(w.Host.Unban(ctx, what))
}

func (w wire) Plan(ctx context.Context, r engine.Request) (*engine.Plan, error) {
	return wired(w.Host.Plan(ctx, r))
}

func (w wire) Apply(ctx context.Context, r engine.Request, o apply.Options) (*apply.Outcome, error) {
	return wired(w.Host.Apply(ctx, r, o))
}

func (w wire) Rollback(ctx context.Context, generation int, o apply.Options) (*apply.Outcome, error) {
	return wired(w.Host.Rollback(ctx, generation, o))
}

func (w wire) Remove(ctx context.Context) (*apply.Outcome, error) { return wired(w.Host.Remove(ctx)) }

func (w wire) Restore(ctx context.Context, r apply.Restoring) (*apply.Outcome, error) {
	return wired(w.Host.Restore(ctx, r))
}

func (w wire) Sync(ctx context.Context) (*apply.Synced, error) { return wired(w.Host.Sync(ctx)) }

func (w wire) Refresh(ctx context.Context, in engine.Refreshing) (*engine.Refreshed, error) {
	return wired(w.Host.Refresh(ctx, in))
}
