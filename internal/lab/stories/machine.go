package stories

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strconv"

	"sluice/internal/system/kernel/sysctl"
)

// The settings of the connection table that belong to the whole machine.
const (
	tableMax     = "net.netfilter.nf_conntrack_max"
	tableBuckets = "net.netfilter.nf_conntrack_buckets"
)

// LimitTable sets the most entries that a connection table may have, and its
// buckets where they are not 0, until the story ends.
func (s *Stage) LimitTable(entries, buckets int) error {
	if s.hold == nil {
		_, err := sysctl.Read(tableMax)
		if errors.Is(err, fs.ErrNotExist) {
			_ = exec.Command("modprobe", "nf_conntrack").Run() // the next lines tell whether it helped
		}
		if s.hold, err = sysctl.NewHold(tableMax, tableBuckets); err != nil {
			return fmt.Errorf("hold the size of the connection table: %w", err)
		}
		if !s.InLab {
			before, _ := s.hold.Before(tableMax)
			s.Say("%s of this machine is changed, and goes back to %s", tableMax, before)
		}
	}
	if buckets > 0 {
		if err := s.hold.Set(tableBuckets, strconv.Itoa(buckets)); err != nil {
			return err
		}
	}
	return s.hold.Set(tableMax, strconv.Itoa(entries))
}

// usualTable makes the table large enough for what is compared. Where instructions are
// counted it has few buckets: the kernel goes through all of them every now and then
// (gc_worker), in a round of whichever site has its turn, which are millions of
// instructions for as many buckets as a machine usually has.
func (s *Stage) usualTable(entries int) error {
	if s.report.Machine.Counted {
		return s.LimitTable(entries, countedBuckets)
	}
	return s.LimitTable(entries, 0)
}

const countedBuckets = 4096

// release brings the settings of the machine back.
func (s *Stage) release() error {
	if s.hold == nil {
		return nil
	}
	return s.hold.Close()
}

// SizeTable gives the machine a table by Sluice: in the kernel lab the policy is
// applied to the machine itself; on a machine that somebody works with nothing but
// the setting itself is written, since Sluice would put its rules there too.
func (s *Stage) SizeTable(ctx context.Context, file string, entries int) error {
	if !s.InLab {
		return s.LimitTable(entries, 0)
	}
	_, err := s.Apply(ctx, nil, file)
	return err
}
