package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// List is where a live list of the policy is.
type List struct {
	Name     string    `json:"-"` // of its file in bundles
	SHA256   string    `json:"-"` // of what hosts are to have; "" is what was signed with the policy
	Previous string    `json:"-"` // before that
	Next     time.Time `json:"-"` // when its server is asked again
	Revision int64     `json:"-"` // at which hosts were to have what they are to have

	Size     int64     `json:"size,omitempty"`      // bytes
	Prefixes int       `json:"prefixes,omitempty"`  // of SHA256
	AllowCut bool      `json:"allow-cut,omitempty"` // hosts take it where it cuts connections too
	Changed  time.Time `json:"changed,omitzero"`    // when SHA256 became what it is
	Checked  time.Time `json:"checked,omitzero"`    // when its server last said what it has
	Failing  time.Time `json:"failing,omitzero"`    // since when nothing good can be had
	Failure  string    `json:"failure,omitempty"`   // why
	Left     int       `json:"left-out,omitempty"`  // ranges of it that are not within its bounds
	Undone   bool      `json:"undone,omitempty"`    // its server is not asked, since somebody went back
}

// Lists are the live lists that are kept.
func (s *Store) Lists(ctx context.Context) ([]List, error) {
	var out []List
	err := s.query(ctx, s.reader, func(scan func(...any) error) error {
		var l List
		var next int64
		var body string
		err := scan(&l.Name, &l.SHA256, &l.Previous, &next, &l.Revision, &body)
		if err == nil {
			l.Next = moment(next)
			if err = json.Unmarshal([]byte(body), &l); err != nil {
				err = fmt.Errorf("list %s: %w", l.Name, err)
			}
		}
		out = append(out, l)
		return err
	}, `select name, sha256, previous, next, revision, body from live_list order by name`)
	return out, err
}

// ClaimList says that the caller is the one to ask for a list that is due, until a time: of
// several controllers one is.
func (s *Store) ClaimList(ctx context.Context, name string, until time.Time) (is bool, err error) {
	return is, s.write(ctx, func(t *tx) error {
		if _, err := t.do(`insert into live_list (name, sha256, previous, next, revision, body) values ($1, '', '', 0, 0, '{}') on conflict (name) do nothing`, name); err != nil {
			return err
		}
		n, err := t.do(`update live_list set next = $1 where name = $2 and next <= $3`, column(until), name, s.micros())
		is = n > 0
		return err
	})
}

// PutList keeps where a list is. What hosts are to have is desired state, of which the audit has
// each change, and not each time that its server was asked.
func (s *Store) PutList(ctx context.Context, who string, l List) error {
	body, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return s.write(ctx, func(t *tx) error {
		var was, had string
		var before List
		err := t.one([]any{&was, &had}, `select sha256, body from live_list where name = $1 LOCKED`, l.Name)
		if err == nil {
			err = json.Unmarshal([]byte(had), &before)
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", l.Name, err)
		}
		if l.SHA256 != "" {
			missing, err := s.missing(ctx, t, []string{l.SHA256})
			if err != nil {
				return err
			}
			if len(missing) > 0 {
				return fmt.Errorf("list %s: %w: blob %.12s", l.Name, ErrMissing, l.SHA256)
			}
		}
		if _, err := t.do(`update live_list set sha256 = $1, previous = $2, next = $3, body = $4 where name = $5`, l.SHA256, l.Previous, column(l.Next), string(body), l.Name); err != nil {
			return err
		}
		if was == l.SHA256 && before.AllowCut == l.AllowCut {
			return nil
		}
		t.changed("list", l.Name)
		t.atLast(func(revision int64) error {
			_, err := t.do(`update live_list set revision = $1 where name = $2`, revision, l.Name)
			return err
		})
		return t.tell(who, "list.change", map[string]any{"list": l.Name, "sha256": l.SHA256, "before": was, "prefixes": l.Prefixes})
	})
}

// DropList forgets a list that no policy has any more.
func (s *Store) DropList(ctx context.Context, name string) error {
	return s.write(ctx, func(t *tx) error {
		_, err := t.do(`delete from live_list where name = $1`, name)
		return err
	})
}
