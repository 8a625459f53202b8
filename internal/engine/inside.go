package engine

import (
	"context"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/engine/apply"
	"sluice/internal/language/bans"
)

// inside runs work on a host inside of its network namespace, where f's host is bound to
// no other.
func inside[T any](h *Host, f func(*Host) (T, error)) (out T, err error) {
	there := *h
	there.Netns = nil
	err = h.Netns.Do(func() error {
		out, err = f(&there)
		return err
	})
	return out, err
}

// Of apply.Host, the methods that speak to the kernel.

// Ban is apply.Host.Ban in the host's network namespace.
func (h *Host) Ban(ctx context.Context, in apply.Banning) (*apply.Banned, error) {
	in.Country = h.country()
	return inside(h, func(h *Host) (*apply.Banned, error) { return h.Host.Ban(ctx, in) })
}

// Unban is apply.Host.Unban in the host's network namespace.
func (h *Host) Unban(ctx context.Context, what []bans.Named) (*apply.Banned, error) {
	return inside(h, func(h *Host) (*apply.Banned, error) { return h.Host.Unban(ctx, what) })
}

// Bans is apply.Host.Bans in the host's network namespace.
func (h *Host) Bans(ctx context.Context) ([]apply.BanEntry, error) {
	return inside(h, func(h *Host) ([]apply.BanEntry, error) { return h.Host.Bans(ctx) })
}

// BansByLimits is apply.Host.BansByLimits in the host's network namespace.
func (h *Host) BansByLimits(ctx context.Context) (list []apply.BanEntry, generation int, err error) {
	list, err = inside(h, func(h *Host) (list []apply.BanEntry, err error) {
		list, generation, err = h.Host.BansByLimits(ctx)
		return list, err
	})
	return list, generation, err
}

// LimitBans is apply.Host.LimitBans in the host's network namespace.
func (h *Host) LimitBans(ctx context.Context, wanted func(generation int) (bool, error), known func(addrset.Range) bool) ([]apply.LimitBan, error) {
	return inside(h, func(h *Host) ([]apply.LimitBan, error) { return h.Host.LimitBans(ctx, wanted, known) })
}

// Confirm is apply.Host.Confirm in the host's network namespace.
func (h *Host) Confirm(ctx context.Context) (int, error) {
	return inside(h, func(h *Host) (int, error) { return h.Host.Confirm(ctx) })
}

// Remove is apply.Host.Remove in the host's network namespace.
func (h *Host) Remove(ctx context.Context) (*apply.Outcome, error) {
	return inside(h, func(h *Host) (*apply.Outcome, error) { return h.Host.Remove(ctx) })
}

// Restore is apply.Host.Restore in the host's network namespace.
func (h *Host) Restore(ctx context.Context, r apply.Restoring) (*apply.Outcome, error) {
	return inside(h, func(h *Host) (*apply.Outcome, error) {
		out, err := h.Host.Restore(ctx, r)
		if err != nil || out.Closed {
			return out, err
		}
		return out, h.afterBack(ctx, out)
	})
}

// Sync is apply.Host.Sync in the host's network namespace, and says what only an apply
// takes in.
func (h *Host) Sync(ctx context.Context) (*apply.Synced, error) {
	return inside(h, func(h *Host) (*apply.Synced, error) {
		out, err := h.restoring().Sync(ctx)
		if err != nil {
			return out, err
		}
		_, now, err := h.Host.Standing(ctx)
		out.Fixed = now.Fixed
		return out, err
	})
}

// Retime is apply.Host.Retime in the host's network namespace.
func (h *Host) Retime(ctx context.Context) error {
	return h.Netns.Do(func() error { return h.Host.Retime(ctx) })
}

// Follow is apply.Host.Follow in the host's network namespace.
func (h *Host) Follow(ctx context.Context, told func(*apply.Synced)) error {
	return h.Netns.Do(func() error { return h.restoring().Follow(ctx, told) })
}

// restoring is a host whose Sync restores as Restore does.
func (h *Host) restoring() *apply.Host {
	out := *h.Host
	if out.Restorer == nil {
		out.Restorer = func(ctx context.Context) (*apply.Outcome, error) {
			there := *h
			there.Netns = nil
			return there.Restore(ctx, apply.Restoring{SSHPorts: apply.SSHPorts(), Waiting: true})
		}
	}
	return &out
}

// Watch is apply.Host.Watch in the host's network namespace.
func (h *Host) Watch(ctx context.Context, token string) error {
	return h.Netns.Do(func() error { return h.Host.Watch(ctx, token) })
}

// Hits is apply.Host.Hits in the host's network namespace.
func (h *Host) Hits(ctx context.Context) (map[string]uint64, error) {
	return inside(h, func(h *Host) (map[string]uint64, error) { return h.Host.Hits(ctx) })
}

// Standing is apply.Host.Standing in the host's network namespace.
func (h *Host) Standing(ctx context.Context) (generation int, out apply.Standing, err error) {
	err = h.Netns.Do(func() error {
		generation, out, err = h.Host.Standing(ctx)
		return err
	})
	return generation, out, err
}

// Glimpse is apply.Host.Glimpse in the host's network namespace.
func (h *Host) Glimpse(ctx context.Context) (*apply.Glimpse, error) {
	return inside(h, func(h *Host) (*apply.Glimpse, error) { return h.Host.Glimpse(ctx) })
}

// Seen is apply.Host.Seen in the host's network namespace.
func (h *Host) Seen(ctx context.Context, g *apply.Glimpse) (time.Time, error) {
	return inside(h, func(h *Host) (time.Time, error) { return h.Host.Seen(ctx, g) })
}

// Figures is apply.Host.Figures in the host's network namespace.
func (h *Host) Figures(ctx context.Context, known *apply.Gauged) (*apply.Figures, error) {
	return inside(h, func(h *Host) (*apply.Figures, error) { return h.Host.Figures(ctx, known) })
}
