package agent

import (
	"context"
	"encoding/json"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/agent/work"
	"sluice/internal/engine/apply"
	"sluice/internal/system/host"
)

// restoreTime is how long it waits for another command.
const restoreTime = 10 * time.Second

// restorer has what a sync cannot edit loaded by a process of its own.
func (s *Site) restorer(by apply.Author, session *host.SSHClient, tell func(api.Line)) func(context.Context) (*apply.Outcome, error) {
	return func(ctx context.Context) (*apply.Outcome, error) {
		order := work.Order{Operation: "restore", Wait: restoreTime, By: by, Session: session}
		var err error
		if order.Request, err = json.Marshal(work.Restoring{Waiting: true}); err != nil {
			return nil, err
		}
		result, err := work.Run(ctx, s.Command, order, tell)
		if err != nil {
			return nil, err
		}
		out := &apply.Outcome{}
		return out, json.Unmarshal(result, out)
	}
}
