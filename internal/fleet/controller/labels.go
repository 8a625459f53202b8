package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"sluice/internal/base/selector"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// label takes an order that gives a host other labels, as the host would, and has it told.
func (c *Controller) label(ctx context.Context, who, host string, envelope []byte) (*api.Labelled, error) {
	c.publishes.Lock()
	defer c.publishes.Unlock()
	order, err := c.online.Labels(envelope, c.Now())
	c.meter.verified(err)
	if errors.Is(err, trust.ErrUnsigned) || errors.Is(err, trust.ErrThreshold) {
		return nil, wrong("%v; a new root.json comes with the next bundle that is published", err)
	}
	if err != nil {
		return nil, wrong("%v", err)
	}
	if order.Host != host {
		return nil, wrong("the order is of host %s, and not of %s", order.Host, host)
	}
	found, err := c.Store.Hosts(ctx, host)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("host %.253q: %w", host, store.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	h := found[0]
	out := &api.Labelled{Host: host, Labels: nonNil(order.Labels), Before: nonNil(h.Labels)}
	switch last, err := trust.ReadLabels(h.LabelsOrder); {
	case !h.Revoked.IsZero():
		return nil, fmt.Errorf("host %s: %w", host, store.ErrRevoked)
	case bytes.Equal(h.LabelsOrder, envelope):
		return out, nil
	case len(h.LabelsOrder) == 0:
	case err != nil:
		return nil, err
	case order.Number <= last.Number:
		return nil, wrong("the order of labels of %s is older than the one that the host has: sign the labels again", host)
	}
	if err := c.Store.SetLabels(ctx, who, host, order.Labels, envelope); err != nil {
		return nil, err
	}
	out.Changed = true
	return out, c.refresh(ctx)
}

func nonNil(labels map[string]string) map[string]string {
	if labels == nil {
		return map[string]string{}
	}
	return labels
}

// ordered is the hash of the order by which a host has its labels; "" where its token gave them.
func ordered(h store.Host) string {
	if len(h.LabelsOrder) == 0 {
		return ""
	}
	return wire.Hash(h.LabelsOrder)
}

// tellOrdered tells those hosts what they are to run that have another order of labels than before.
func (c *Controller) tellOrdered(ctx context.Context, old, next *view, ids []string) {
	for _, id := range ids {
		if of := ordered(next.hosts[id]); of != "" && of != ordered(old.hosts[id]) {
			c.tell(ctx, id)
		}
	}
}

// unlabelled says that a host has not taken its labels yet, and why; "" where it has.
func unlabelled(h store.Host, r *wire.Report) string {
	of := ordered(h)
	if of == "" || r.Labels == of {
		return ""
	}
	text := "it has not taken the labels " + selector.LabelText(h.Labels) + " yet"
	if r.Error != "" {
		text += ": " + r.Error
	}
	return text
}
