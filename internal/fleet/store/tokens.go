package store

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"sluice/internal/base/english"
)

// Token lets hosts enrol.
type Token struct {
	ID        string            `json:"id"`
	Secret    [32]byte          `json:"-"` // SHA-256 of the secret, which nobody keeps
	Labels    map[string]string `json:"labels"`
	Uses      int               `json:"uses"` // how often it may be used
	Used      int               `json:"used"`
	Created   time.Time         `json:"created"`
	By        string            `json:"by"`
	Expires   time.Time         `json:"expires"`
	Withdrawn time.Time         `json:"withdrawn,omitzero"`
	Approve   bool              `json:"approve,omitempty"` // a person lets each host in
}

// CreateToken keeps a token; ErrExists where there is one of that name or secret.
func (s *Store) CreateToken(ctx context.Context, who string, k Token) error {
	labels, err := labelText(k.Labels)
	if err != nil {
		return err
	}
	return s.write(ctx, func(t *tx) error {
		err := t.must(ErrExists, `insert into token (id, secret, labels, uses, used, created, created_by, expires, withdrawn, approve)
			values ($1, $2, $3, $4, 0, $5, $6, $7, 0, $8) on conflict do nothing`,
			k.ID, hex.EncodeToString(k.Secret[:]), labels, k.Uses, s.micros(), who, column(k.Expires), number(k.Approve))
		if err != nil {
			return fmt.Errorf("token %s: %w", k.ID, err)
		}
		return t.tell(who, "token.create", map[string]any{"token": k.ID, "labels": k.Labels, "uses": k.Uses, "expires": k.Expires.UTC(), "approve": k.Approve})
	})
}

// WithdrawToken ends a token.
func (s *Store) WithdrawToken(ctx context.Context, who, id string) error {
	return s.write(ctx, func(t *tx) error {
		err := t.must(ErrNotFound, `update token set withdrawn = $1 where id = $2 and withdrawn = 0`, s.micros(), id)
		if err != nil {
			return fmt.Errorf("token %.64q: %w", id, err)
		}
		return t.tell(who, "token.withdraw", map[string]any{"token": id})
	})
}

// Tokens are all tokens, the newest first, without their secrets.
func (s *Store) Tokens(ctx context.Context) ([]Token, error) {
	var out []Token
	err := s.query(ctx, s.reader, func(scan func(...any) error) error {
		k, err := scanToken(scan)
		out = append(out, k)
		return err
	}, tokenColumns+` order by created desc, id`)
	return out, err
}

const tokenColumns = `select id, labels, uses, used, created, created_by, expires, withdrawn, approve from token`

func scanToken(scan func(...any) error) (k Token, err error) {
	var labels string
	var created, expires, withdrawn, approve int64
	if err := scan(&k.ID, &labels, &k.Uses, &k.Used, &created, &k.By, &expires, &withdrawn, &approve); err != nil {
		return k, err
	}
	k.Created, k.Expires, k.Withdrawn, k.Approve = moment(created), moment(expires), moment(withdrawn), approve != 0
	return k, json.Unmarshal([]byte(labels), &k.Labels)
}

// Enrolment is a host that asks to be enrolled.
type Enrolment struct {
	Secret    [32]byte // SHA-256 of the token's secret
	Host      string   // the name that it asks for
	Key       string   // SHA-256 of its SubjectPublicKeyInfo, hexadecimal
	Addresses []netip.Addr
}

// Enrol uses a token once and makes the host, with the token's labels, in one transaction:
// of two at the same time that share the last use one gets ErrToken. The same host with
// the same token and key gets the same answer again, since the first may have been lost.
// ErrTaken: the name is that of a host with another key that is not revoked. ErrPending: a person
// has to approve it first, and it is asked for again then.
func (s *Store) Enrol(ctx context.Context, e Enrolment) (h Host, err error) {
	var pending error
	err = s.write(ctx, func(t *tx) (err error) {
		pending = nil
		h, err = t.enrol(e)
		if errors.Is(err, ErrPending) { // which is kept
			pending, err = err, nil
		}
		return err
	})
	return h, cmp.Or(err, pending)
}

func (t *tx) enrol(e Enrolment) (Host, error) {
	secret := hex.EncodeToString(e.Secret[:])
	var token Token
	found := false
	err := t.store.query(t.ctx, t, func(scan func(...any) error) (err error) {
		found = true
		token, err = scanToken(scan)
		return err
	}, tokenColumns+` where secret = $1`, secret)
	if err != nil {
		return Host{}, err
	}
	if !found {
		return Host{}, fmt.Errorf("%w: this fleet has no such token", ErrToken)
	}
	before, err := t.host(e.Host)
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return Host{}, err
	case before.Revoked.IsZero():
		var mine int
		if err := t.one([]any{&mine}, `select count(*) from host_key where key = $1 and host = $2 and revoked = 0`, e.Key, e.Host); err != nil {
			return Host{}, err
		}
		if mine == 0 {
			return Host{}, fmt.Errorf("host %s: %w: it was enrolled at %s with another key; if this one replaces it, first run sluice-controller revoke %s",
				e.Host, ErrTaken, english.Moment(before.Enrolled), e.Host)
		}
		if before.token == token.ID {
			return before, nil
		}
	}
	now := t.store.micros()
	until := now
	if token.Approve {
		until = 0 // it was good when the host asked
		if err := t.approved(token, e); err != nil {
			return Host{}, err
		}
	}
	n, err := t.do(`update token set used = used + 1 where secret = $1 and used < uses and expires > $2 and withdrawn = 0`, secret, until)
	if err != nil {
		return Host{}, err
	}
	if n == 0 {
		return Host{}, token.refusal(now)
	}
	labels, err := labelText(token.Labels)
	if err != nil {
		return Host{}, err
	}
	addresses, err := list(e.Addresses)
	if err != nil {
		return Host{}, err
	}
	if before.ID == "" {
		// Two at the same time: one of them fails here, and starts again.
		_, err = t.do(`insert into host (id, labels, labels_order, addresses, facts, version, level, protocol, enrolled, seen, revoked, revoked_why, token)
			values ($1, $2, $3, $4, '', '', 0, 0, $5, 0, 0, '', $6)`, e.Host, labels, []byte{}, addresses, now, token.ID)
	} else {
		_, err = t.do(`update host set labels = $2, labels_order = $3, addresses = $4, enrolled = $5, revoked = 0, revoked_why = '', token = $6
			where id = $1`, e.Host, labels, []byte{}, addresses, now, token.ID)
	}
	if err != nil {
		return Host{}, err
	}
	if err := t.key(e.Host, e.Key); err != nil {
		return Host{}, err
	}
	if err := t.refuseHost(e.Host, "host:"+e.Host, "another host has this name now"); err != nil {
		return Host{}, err
	}
	t.changed("host", e.Host)
	err = t.tell("host:"+e.Host, "host.enrol", map[string]any{"host": e.Host, "token": token.ID, "key": e.Key, "labels": token.Labels, "addresses": e.Addresses})
	if err != nil {
		return Host{}, err
	}
	return t.host(e.Host)
}

// refusal says why a token was not taken.
func (k Token) refusal(now int64) error {
	switch {
	case !k.Withdrawn.IsZero():
		return fmt.Errorf("%w: it was withdrawn at %s", ErrToken, english.Moment(k.Withdrawn))
	case column(k.Expires) <= now:
		return fmt.Errorf("%w: it expired at %s", ErrToken, english.Moment(k.Expires))
	}
	return fmt.Errorf("%w: it was used %s already", ErrToken, times(k.Uses))
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
