package controller

import (
	"context"
	"errors"

	"sluice/internal/fleet/store"
)

// older sees whether an older copy of the database was put in its place by other means than
// "restore": it lacks the entry of the audit that this controller has signed last. Then bans and
// allows are refused as after a restore. Another controller may have taken a newer incarnation:
// what was signed here before says nothing about that.
func (c *Controller) older(ctx context.Context) error {
	is := c.online.State()
	if is.AuditHead == "" {
		return nil
	}
	head, err := store.ParseHead(is.AuditHead)
	if err != nil {
		return err
	}
	has, err := c.Store.Fleet(ctx)
	if err != nil || has.Incarnation > is.Incarnation {
		return err
	}
	stands, err := c.Store.Known(ctx, head)
	if err != nil || stands == store.Same {
		return err
	}
	return c.isOlder(ctx, map[string]any{"audit": has.Head.String(), "lacks": is.AuditHead})
}

// isOlder keeps that it is.
func (c *Controller) isOlder(ctx context.Context, diff map[string]any) error {
	news, err := c.Store.WentBack(ctx, self, diff)
	if news {
		c.Note(errors.New("an older copy of the database was put in its place: nothing can be banned or let in, and hosts that know more take nothing, until the policy key has signed a new incarnation: sluice-controller sign --restore && sluice-controller publish"))
	}
	return err
}

// signLast signs the head of the audit when the controller ends, so that the next one misses none
// of it.
func (c *Controller) signLast(ctx context.Context) {
	if c.online.State().TargetsVersion == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	if c.older(ctx) != nil {
		return
	}
	if f, err := c.Store.Fleet(ctx); err == nil {
		if _, err := c.online.Refresh(f.Head.String(), c.Now()); err != nil {
			c.Note(err)
		}
	}
}
