package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Notice is something wrong that people hear of, once as it begins and once as it ends.
type Notice struct {
	Number  int64
	Kind    string
	Subject string
	Text    string
	Since   time.Time
	Gone    time.Time // since when it is not there, though it may come again; zero: it is there
	Ended   time.Time // zero: it has not; of a kind and a subject one is open at most
}

// Receiver is one who hears of notices, and how that goes.
type Receiver struct {
	Name  string    `json:"-"`
	Since time.Time `json:"-"` // since when there is one of that name
	Next  time.Time `json:"-"` // when it is tried again

	Sent     int64     `json:"sent,omitempty"`     // messages that it took
	Failed   int64     `json:"failed,omitempty"`   // and that it did not take
	At       time.Time `json:"at,omitzero"`        // when it took the last one
	Failing  time.Time `json:"failing,omitzero"`   // since when it takes none
	Failures int       `json:"failures,omitempty"` // in a row
	Failure  string    `json:"failure,omitempty"`  // why
}

// Told is what a receiver has heard of a notice last.
type Told struct {
	Receiver string
	Notice   int64
	Event    string
	At       time.Time
}

// Notices are those that are open, or all that are kept, by number.
func (s *Store) Notices(ctx context.Context, all bool) ([]Notice, error) {
	var out []Notice
	err := s.query(ctx, s.reader, func(scan func(...any) error) error {
		var n Notice
		var since, gone, ended int64
		err := scan(&n.Number, &n.Kind, &n.Subject, &n.Text, &since, &gone, &ended)
		n.Since, n.Gone, n.Ended = moment(since), moment(gone), moment(ended)
		out = append(out, n)
		return err
	}, `select number, kind, subject, text, since, gone, ended from notice where ended = 0 or $1 = 1 order by number`, number(all))
	return out, err
}

// ChangeNotices keeps that some have begun, which get their numbers, and how others are. What
// another controller began or ended meanwhile stays as it is.
func (s *Store) ChangeNotices(ctx context.Context, begun, changed []Notice) error {
	return s.write(ctx, func(t *tx) error {
		var last int64
		if err := t.one([]any{&last}, `select coalesce(max(number), 0) from notice`); err != nil {
			return err
		}
		for i, n := range begun {
			_, err := t.do(`insert into notice (number, kind, subject, text, since, gone, ended) values ($1, $2, $3, $4, $5, 0, 0) on conflict do nothing`,
				last+1+int64(i), n.Kind, n.Subject, n.Text, column(n.Since))
			if err != nil {
				return err
			}
		}
		for _, n := range changed {
			_, err := t.do(`update notice set text = $1, gone = $2, ended = $3 where number = $4 and ended = 0`, n.Text, column(n.Gone), column(n.Ended), n.Number)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// PruneNotices forgets those that ended before a time, and all that ended but the newest most.
// The one with the highest number stays, so that no number comes again.
func (s *Store) PruneNotices(ctx context.Context, before time.Time, most int64) error {
	return s.write(ctx, func(t *tx) error {
		_, err := t.do(`delete from notice where ended <> 0 and (ended < $1 or number <= (select max(number) from notice) - $2) and number < (select max(number) from notice)`, column(before), most)
		return err
	})
}

// NoticesTested puts into the audit that somebody sent a test to the receivers.
func (s *Store) NoticesTested(ctx context.Context, who string, receivers int) error {
	return s.write(ctx, func(t *tx) error { return t.tell(who, "notices.test", map[string]any{"receivers": receivers}) })
}

// Receivers are those who were ever told, or were to be, by name.
func (s *Store) Receivers(ctx context.Context) ([]Receiver, error) {
	var out []Receiver
	err := s.query(ctx, s.reader, func(scan func(...any) error) error {
		var r Receiver
		var since, next int64
		var body string
		err := scan(&r.Name, &since, &next, &body)
		if err == nil {
			r.Since, r.Next = moment(since), moment(next)
			if err = json.Unmarshal([]byte(body), &r); err != nil {
				err = fmt.Errorf("receiver %s: %w", r.Name, err)
			}
		}
		out = append(out, r)
		return err
	}, `select name, since, next, body from notice_receiver order by name`)
	return out, err
}

// AddReceiver makes a receiver known, who hears of what has not ended by now.
func (s *Store) AddReceiver(ctx context.Context, name string, now time.Time) error {
	return s.write(ctx, func(t *tx) error {
		_, err := t.do(`insert into notice_receiver (name, since, held, next, body) values ($1, $2, 0, 0, '{}') on conflict (name) do nothing`, name, column(now))
		return err
	})
}

// HoldReceiver says that the caller is the one who tells a receiver, until a time: of several
// controllers one is, and none before it is to be tried again.
func (s *Store) HoldReceiver(ctx context.Context, name string, now, until time.Time) (is bool, err error) {
	return is, s.write(ctx, func(t *tx) error {
		n, err := t.do(`update notice_receiver set held = $1 where name = $2 and held <= $3 and next <= $3`, column(until), name, column(now))
		is = n > 0
		return err
	})
}

// PutReceiver keeps how it went with one that the caller holds, and what it has heard, and lets
// others tell it again.
func (s *Store) PutReceiver(ctx context.Context, r Receiver, told []Told) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.write(ctx, func(t *tx) error {
		if _, err := t.do(`update notice_receiver set held = 0, next = $1, body = $2 where name = $3`, column(r.Next), string(body), r.Name); err != nil {
			return err
		}
		for _, is := range told {
			_, err := t.do(`insert into notice_told (receiver, notice, event, at) values ($1, $2, $3, $4)
				on conflict (receiver, notice) do update set event = excluded.event, at = excluded.at`, r.Name, is.Notice, is.Event, column(is.At))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Told is what receivers have heard last, of each notice that is kept.
func (s *Store) Told(ctx context.Context) ([]Told, error) {
	var out []Told
	err := s.query(ctx, s.reader, func(scan func(...any) error) error {
		var is Told
		var at int64
		err := scan(&is.Receiver, &is.Notice, &is.Event, &at)
		is.At = moment(at)
		out = append(out, is)
		return err
	}, `select receiver, notice, event, at from notice_told order by notice, receiver`)
	return out, err
}

// Heard is a notice, and what a receiver has heard of it last.
type Heard struct {
	Notice

	Event string // "": nothing
	At    time.Time
}

// Unheard are the notices that are open, and those that have ended since a time of which a
// receiver has not heard the event that ends them.
func (s *Store) Unheard(ctx context.Context, receiver, ends string, since time.Time) ([]Heard, error) {
	var out []Heard
	err := s.query(ctx, s.reader, func(scan func(...any) error) error {
		var n Heard
		var begun, gone, ended, at int64
		err := scan(&n.Number, &n.Kind, &n.Subject, &n.Text, &begun, &gone, &ended, &n.Event, &at)
		n.Since, n.Gone, n.Ended, n.At = moment(begun), moment(gone), moment(ended), moment(at)
		out = append(out, n)
		return err
	}, `select n.number, n.kind, n.subject, n.text, n.since, n.gone, n.ended, coalesce(t.event, ''), coalesce(t.at, 0)
		from notice n left join notice_told t on t.notice = n.number and t.receiver = $1
		where n.ended = 0 or n.ended >= $2 and coalesce(t.event, '') <> $3 order by n.number`, receiver, column(since), ends)
	return out, err
}

// CertificateEnds are when the newest certificates of hosts end.
func (s *Store) CertificateEnds(ctx context.Context) (map[string]time.Time, error) {
	out := map[string]time.Time{}
	err := s.query(ctx, s.reader, func(scan func(...any) error) error {
		var host string
		var until int64
		err := scan(&host, &until)
		out[host] = moment(until)
		return err
	}, `select host, max(until) from certificate group by host`)
	return out, err
}

// StoppedRollouts are those that are halted or on their way back, and those that have been
// taken back since a time.
func (s *Store) StoppedRollouts(ctx context.Context, since time.Time) ([]Rollout, error) {
	return s.rollouts(ctx, s.reader, ` where phase in ('halted', 'reverting') or phase = 'reverted' and changed >= $1 order by id`, column(since))
}
