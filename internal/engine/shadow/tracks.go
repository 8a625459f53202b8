package shadow

import (
	"context"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/system/kernel/sysctl"
)

// UntrackedError says that the shadow would start connection tracking.
type UntrackedError struct{}

func (UntrackedError) Error() string {
	return "nothing tracks connections here, and the policy matches their state: the shadow would start tracking, which costs every packet and drops some when its table is full"
}

// Tracking is an UntrackedError where nothing in the network namespace of the process tracks
// connections, so that a shadow that asks for their state would be the first.
func Tracking(ctx context.Context, b backend.Backend) error {
	if count, err := sysctl.Read("net.netfilter.nf_conntrack_count"); err == nil && strings.TrimSpace(count) != "0" {
		return nil
	}
	own, err := temporary(b)
	if err != nil {
		return err
	}
	if tracked, err := own.Tracked(ctx); err != nil || tracked {
		return err
	}
	return UntrackedError{}
}
