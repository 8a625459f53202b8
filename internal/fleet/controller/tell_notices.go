package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice/internal/fleet/notices"
	"sluice/internal/fleet/store"
)

const (
	// noticeHold is how long other controllers leave a receiver alone that this one tells: longer
	// than that may take.
	noticeHold = 4 * notices.MostTime
	// A receiver that took nothing is tried again after noticeRetry, and after twice as long each
	// time, up to noticeRest.
	noticeRetry = 30 * time.Second
	// noticeApart is how far two messages are apart that a receiver takes, so that what comes one
	// by one to many hosts is few mails.
	noticeApart = time.Minute
	noticeRest  = 15 * time.Minute
	// endedFor is how long a receiver that takes nothing is to hear of what has ended.
	endedFor = 7 * 24 * time.Hour
)

// tellReceiver tells one receiver what it has to hear. What it could not be told yet is in the
// database, whatever happens to the controller; what it was told just before that ended, it
// hears again.
func (c *Controller) tellReceiver(ctx context.Context, to *notices.Receiver) {
	known := false
	for {
		err := error(nil)
		if !known {
			err = c.Store.AddReceiver(ctx, to.Name, c.Now())
			known = err == nil
		}
		if err == nil {
			err = c.tellNow(ctx, to)
		}
		if err != nil && ctx.Err() == nil && c.away() == "" {
			c.Note(fmt.Errorf("receiver %s of notices is not told: %w", to.Name, err))
		}
		select {
		case <-time.After(noticeEvery):
		case <-ctx.Done():
			return
		}
	}
}

// tellNow sends what is due, if this controller is the one that does. The error is of the
// database: what the receiver does wrong is kept there.
func (c *Controller) tellNow(ctx context.Context, to *notices.Receiver) error {
	if _, due, err := c.due(ctx, to); err != nil || len(due) == 0 {
		return err
	}
	now := c.Now()
	mine, err := c.Store.HoldReceiver(ctx, to.Name, now, now.Add(noticeHold))
	if err != nil || !mine {
		return err
	}
	row, due, err := c.due(ctx, to) // another may have told it just now
	if err != nil {
		return err
	}
	var told []store.Told
	if len(due) > 0 {
		_, err := to.Send(ctx, notices.NewMessage(c.Fleet(), due))
		if err == nil || ctx.Err() == nil { // else the controller ends
			row = c.went(row, now, err)
		}
		if err == nil {
			for _, n := range due {
				told = append(told, store.Told{Receiver: to.Name, Notice: n.Number, Event: string(n.Event), At: now})
			}
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	return c.Store.PutReceiver(last, row, told)
}

// went is how it went with a receiver that was asked at a time.
func (c *Controller) went(row store.Receiver, now time.Time, err error) store.Receiver {
	c.noticing.mutex.Lock()
	defer c.noticing.mutex.Unlock()
	count := c.noticing.told[row.Name]
	if err == nil {
		count.sent++
		row.Sent++
		row.At, row.Next, row.Failing, row.Failures, row.Failure = now, now.Add(noticeApart), time.Time{}, 0, ""
		return row
	}
	if row.Failing.IsZero() {
		row.Failing = now
		c.Note(fmt.Errorf("receiver %s of notices takes nothing, and is tried again: %w", row.Name, err))
	}
	count.failed++
	row.Failed++
	row.Next = now.Add(min(noticeRest, noticeRetry<<min(row.Failures, 10)))
	row.Failures++
	row.Failure = err.Error()
	return row
}

// due is what a receiver has to hear now, and how it went before.
func (c *Controller) due(ctx context.Context, to *notices.Receiver) (row store.Receiver, due []notices.Notice, err error) {
	receivers, err := c.Store.Receivers(ctx)
	c.answered(err)
	if err != nil {
		return row, nil, err
	}
	i := slices.IndexFunc(receivers, func(r store.Receiver) bool { return r.Name == to.Name })
	if i < 0 {
		return row, nil, errors.New("the database does not know it")
	}
	row = receivers[i]
	if row.Next.After(c.Now()) {
		return row, nil, nil
	}
	due, err = c.unheard(ctx, to, row)
	return row, due, err
}

// unheard is what a receiver is to hear.
func (c *Controller) unheard(ctx context.Context, to *notices.Receiver, row store.Receiver) (due []notices.Notice, err error) {
	now, since := c.Now(), row.Since
	if oldest := now.Add(-endedFor); since.Before(oldest) {
		since = oldest
	}
	all, err := c.Store.Unheard(ctx, to.Name, string(notices.Ended), since)
	if err != nil {
		return nil, err
	}
	for _, n := range all {
		var event notices.Event
		switch {
		case !n.Ended.IsZero():
			event = notices.Ended
		case n.Event == "":
			event = notices.Begins
		case c.Options.Notices.Remind > 0 && n.Gone.IsZero() && now.Sub(n.At) >= c.Options.Notices.Remind:
			event = notices.Lasts
		}
		if event != "" && to.Wants(notices.Kind(n.Kind)) {
			due = append(due, notices.Notice{Number: n.Number, Event: event, Kind: notices.Kind(n.Kind), Subject: n.Subject, Text: n.Text, Since: n.Since, Ended: n.Ended})
		}
	}
	return due, nil
}
