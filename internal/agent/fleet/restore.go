package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// restoreEvery is the pause between two restores that somebody wants, however often they say so.
const restoreEvery = 10 * time.Second

// restoreAll loads what runs once more, as often as somebody wants it.
func (m *Member) restoreAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case by := <-m.restores:
			if err := m.Engine.Restore(ctx, by); err == nil {
				m.PutBack()
			} else if ctx.Err() == nil {
				m.note(fmt.Errorf("%s wants this host to restore what runs: %w", said{errors.New(by)}.Error(), err))
			}
		}
		sleep(ctx, restoreEvery)
	}
}
