package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Access lets who knows a secret ask the controller.
type Access struct {
	ID        string     `json:"id"`
	Kind      AccessKind `json:"kind"`
	Secret    [32]byte   `json:"-"`                // SHA-256 of the secret, which nobody keeps
	Who       string     `json:"who"`              // as the audit names them: token:NAME
	Role      string     `json:"role,omitempty"`   // "": what the fleet gives to who and to groups
	Hosts     string     `json:"hosts,omitempty"`  // the selector of which the role holds; "": all
	Groups    []string   `json:"groups,omitempty"` // as the provider named them
	Makers    []string   `json:"-"`                // who made it, and who made what they made it by, but on the controller's machine
	Binds     string     `json:"-"`                // of a link: the SHA-256 of the session's secret, in hexadecimal; "": any
	Created   time.Time  `json:"created"`
	By        string     `json:"by"`
	Expires   time.Time  `json:"expires"`
	Withdrawn time.Time  `json:"withdrawn,omitzero"`
	Used      time.Time  `json:"used,omitzero"` // last, or up to [usedEvery] before that
}

// AccessKind is what an access was made as.
type AccessKind string

// Kinds of accesses.
const (
	AccessToken   AccessKind = "token"   // a program's
	AccessLink    AccessKind = "link"    // good for one session, see [Store.Login]
	AccessSession AccessKind = "session" // of a person
)

// mostAccess is how many accesses are good at once.
const mostAccess = 10_000

// CreateAccess keeps an access: ErrExists where there is one of that id or secret,
// ErrTooMany where there are too many that are good.
func (s *Store) CreateAccess(ctx context.Context, who string, a Access) error {
	return s.write(ctx, func(t *tx) error { return t.createAccess(who, a) })
}

func (t *tx) createAccess(who string, a Access) error {
	groups, err := list(a.Groups)
	if err != nil {
		return err
	}
	makers, err := list(a.Makers)
	if err != nil {
		return err
	}
	var good int
	if err := t.one([]any{&good}, `select count(*) from access where expires > $1 and withdrawn = 0`, t.store.micros()); err != nil {
		return err
	}
	if good >= mostAccess {
		return fmt.Errorf("%w: %d tokens and sessions are good now", ErrTooMany, good)
	}
	err = t.must(ErrExists, `insert into access (id, kind, secret, who, role, hosts, member_of, created, created_by, expires, withdrawn, binds, makers)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0, $11, $12) on conflict do nothing`,
		a.ID, string(a.Kind), hex.EncodeToString(a.Secret[:]), a.Who, a.Role, a.Hosts, groups, t.store.micros(), who, column(a.Expires), a.Binds, makers)
	if err != nil {
		return fmt.Errorf("access %s: %w", a.ID, err)
	}
	return t.tell(who, "access.create", map[string]any{
		"access": a.ID, "kind": a.Kind, "who": a.Who, "role": a.Role, "hosts": a.Hosts, "expires": a.Expires.UTC(),
	})
}

// Login uses a link once and makes a session of who it is of, with another secret, in one
// transaction. ErrNotFound: there is no link of that secret that is good, or it is for
// another session.
func (s *Store) Login(ctx context.Context, link [32]byte, id string, session [32]byte, expires time.Time) (a Access, err error) {
	return a, s.write(ctx, func(t *tx) error {
		secret := hex.EncodeToString(session[:])
		err := t.must(ErrNotFound, `update access set withdrawn = $1 where secret = $2 and kind = $3 and withdrawn = 0 and expires > $1 and binds in ('', $4)`,
			s.micros(), hex.EncodeToString(link[:]), string(AccessLink), secret)
		if err != nil {
			return fmt.Errorf("a link to log in: %w", err)
		}
		err = s.query(ctx, t, func(scan func(...any) error) (err error) {
			a, err = scanAccess(scan)
			return err
		}, accessColumns+` where secret = $1`, hex.EncodeToString(link[:]))
		if err != nil {
			return err
		}
		a.ID, a.Kind, a.Secret, a.Expires, a.Withdrawn = id, AccessSession, session, expires, time.Time{}
		return t.createAccess(a.Who, a)
	})
}

// usedEvery is how often it is kept that an access is used.
const usedEvery = time.Hour

// UsedAccess keeps that an access is used now, where that was not kept lately. It is no change,
// and no entry of the audit.
func (s *Store) UsedAccess(ctx context.Context, a Access) error {
	now, lately := s.micros(), s.Now().Add(-usedEvery)
	if a.Used.After(lately) {
		return nil
	}
	return s.write(ctx, func(t *tx) error {
		_, err := t.do(`update access set used = $1 where id = $2 and used <= $3`, now, a.ID, lately.UnixMicro())
		return err
	})
}

// WithdrawAccess ends an access. What waits for approval that was asked by it is refused, unless
// its owner ends it, who logs out.
func (s *Store) WithdrawAccess(ctx context.Context, who, id string) error {
	return s.write(ctx, func(t *tx) error {
		n, err := t.do(`update access set withdrawn = $1 where id = $2 and withdrawn = 0`, s.micros(), id)
		if err != nil {
			return err
		}
		refused, err := t.refuseOf(id, who)
		if err == nil && n == 0 && refused == 0 { // of one that its owner has ended something may wait
			err = ErrNotFound
		}
		if err != nil {
			return fmt.Errorf("access %.64q: %w", id, err)
		}
		return t.tell(who, "access.withdraw", map[string]any{"access": id})
	})
}

// AccessBy is the access of a secret, whether it is good or not; ErrNotFound.
func (s *Store) AccessBy(ctx context.Context, secret [32]byte) (Access, error) {
	return s.access(ctx, ` where secret = $1`, hex.EncodeToString(secret[:]))
}

// AccessOf is the access of an id, whether it is good or not; ErrNotFound.
func (s *Store) AccessOf(ctx context.Context, id string) (Access, error) {
	return s.access(ctx, ` where id = $1`, id)
}

func (s *Store) access(ctx context.Context, where, is string) (a Access, err error) {
	found := false
	err = s.query(ctx, s.reader, func(scan func(...any) error) (err error) {
		found = true
		a, err = scanAccess(scan)
		return err
	}, accessColumns+where, is)
	if err == nil && !found {
		err = ErrNotFound
	}
	return a, err
}

// Accesses are those that are good, or were less than a month ago, the newest first.
func (s *Store) Accesses(ctx context.Context) ([]Access, error) {
	var out []Access
	since := s.Now().Add(-forgotten).UnixMicro()
	err := s.query(ctx, s.reader, func(scan func(...any) error) error {
		a, err := scanAccess(scan)
		out = append(out, a)
		return err
	}, accessColumns+` where expires > $1 and (withdrawn = 0 or withdrawn > $1) order by created desc, id`, since)
	return out, err
}

// forgotten is how long it is told of an access that it is over; then it is removed. Of the
// audit it is not.
const forgotten = 30 * 24 * time.Hour

// PruneAccess removes what was over for a month.
func (s *Store) PruneAccess(ctx context.Context) error {
	return s.write(ctx, func(t *tx) error {
		_, err := t.do(`delete from access where expires < $1 or (withdrawn > 0 and withdrawn < $1)`, s.Now().Add(-forgotten).UnixMicro())
		return err
	})
}

const accessColumns = `select id, kind, who, role, hosts, member_of, created, created_by, expires, withdrawn, used, makers from access`

func scanAccess(scan func(...any) error) (a Access, err error) {
	var kind, groups, makers string
	var created, expires, withdrawn, used int64
	if err := scan(&a.ID, &kind, &a.Who, &a.Role, &a.Hosts, &groups, &created, &a.By, &expires, &withdrawn, &used, &makers); err != nil {
		return a, err
	}
	a.Kind, a.Created, a.Expires, a.Withdrawn, a.Used = AccessKind(kind), moment(created), moment(expires), moment(withdrawn), moment(used)
	return a, errors.Join(json.Unmarshal([]byte(groups), &a.Groups), json.Unmarshal([]byte(makers), &a.Makers))
}
