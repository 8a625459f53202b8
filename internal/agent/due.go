package agent

import (
	"context"
	"encoding/json"

	"sluice/internal/agent/api"
	"sluice/internal/agent/due"
	"sluice/internal/agent/work"
)

// due has what is due of a site done, one thing at a time, by a process of its own.
func (a *Agent) due(site *Site) *due.Host {
	return &due.Host{Host: site.Host, Alert: site.Alerts.Send, Work: func(ctx context.Context, o work.Order, told func(api.Line)) (json.RawMessage, error) {
		select {
		case a.turn <- struct{}{}:
			defer func() { <-a.turn }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		defer quieten()
		return work.Run(ctx, site.Command, o, told)
	}}
}
