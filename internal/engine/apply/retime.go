package apply

import (
	"context"
	"slices"

	"sluice/internal/language/bans"
)

// Retime makes bans end, and a trial that is over, when their time is up, after the wall
// clock was set or the machine slept: time-outs of the kernel stand still meanwhile, and
// bans of an earlier boot were given them by the clock as it was.
func (h *Host) Retime(ctx context.Context) error {
	if !h.known() {
		return nil
	}
	s, ctx, err := h.open(ctx) // which takes the trial back
	if err != nil {
		return err
	}
	defer s.close()
	list, err := s.banJournal.Read()
	if err != nil {
		return err
	}
	now := s.now()
	if !slices.ContainsFunc(list.All(), func(b bans.Ban) bool { return !b.Until.IsZero() }) || s.cur.Running == 0 {
		return nil
	}
	c, err := s.running(ctx)
	if err != nil {
		return nil // restore brings them in
	}
	since := s.instantNow()
	// Of a later boot this one's bans end by the clock as it is now.
	if _, err = s.banJournal.Append(bans.Entry{Time: now}); err == nil {
		err = s.bring(ctx, c, false, nil, nil, now)
	}
	if err == nil {
		err = s.banJournal.Settle()
	}
	s.stayReading(since, "", "")
	return err
}
