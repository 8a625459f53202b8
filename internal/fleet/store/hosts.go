package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/base/english"
)

// Host is one that was enrolled.
type Host struct {
	ID          string            `json:"id"`
	Labels      map[string]string `json:"labels"`
	LabelsOrder []byte            `json:"labels-order,omitempty"` // the signed order that gave them; none: the token did
	Addresses   []netip.Addr      `json:"addresses"`
	Facts       string            `json:"facts,omitempty"` // SHA-256, see [Store.Facts]
	Version     string            `json:"version,omitempty"`
	Level       int               `json:"level,omitempty"` // of the language that it knows
	Protocol    int               `json:"protocol,omitempty"`
	Enrolled    time.Time         `json:"enrolled"`
	Seen        time.Time         `json:"seen,omitzero"`
	Revoked     time.Time         `json:"revoked,omitzero"`
	RevokedWhy  string            `json:"revoked-why,omitempty"`

	token string // by which it was enrolled
}

// MaxFacts and MaxLabels bound what a host may say of itself, in bytes.
const (
	MaxFacts  = 1 << 20
	MaxLabels = 16 << 10 // as JSON
)

// Certificate is one that was issued to a host.
type Certificate struct {
	Serial string    `json:"serial"`
	Host   string    `json:"host"`
	Key    string    `json:"key"` // SHA-256 of its SubjectPublicKeyInfo, hexadecimal
	From   time.Time `json:"from"`
	Until  time.Time `json:"until"`
}

// Hosts are those of the names given, or all, in the order of their names.
func (s *Store) Hosts(ctx context.Context, ids ...string) ([]Host, error) {
	return s.hosts(ctx, s.reader, ids, "")
}

func (s *Store) hosts(ctx context.Context, q querier, ids []string, lock string) ([]Host, error) {
	where, args, err := named("id", ids)
	if err != nil {
		return nil, err
	}
	var out []Host
	err = s.query(ctx, q, func(scan func(...any) error) error {
		var h Host
		var labels, addresses string
		var enrolled, seen, revoked int64
		err := scan(&h.ID, &labels, &h.LabelsOrder, &addresses, &h.Facts, &h.Version, &h.Level, &h.Protocol, &enrolled, &seen, &revoked, &h.RevokedWhy, &h.token)
		if err != nil {
			return err
		}
		if len(h.LabelsOrder) == 0 {
			h.LabelsOrder = nil
		}
		h.Enrolled, h.Seen, h.Revoked = moment(enrolled), moment(seen), moment(revoked)
		out = append(out, h)
		last := &out[len(out)-1]
		return errors.Join(json.Unmarshal([]byte(labels), &last.Labels), json.Unmarshal([]byte(addresses), &last.Addresses))
	}, `select id, labels, labels_order, addresses, facts, version, level, protocol, enrolled, seen, revoked, revoked_why, token
		from host`+where+` order by id `+lock, args...)
	return out, err
}

// named is the clause and its arguments that choose some rows, or all.
func named(column string, ids []string) (where string, args []any, err error) {
	if len(ids) == 0 {
		return "", nil, nil
	}
	names, err := list(ids)
	return " where " + column + " in NAMES($1)", []any{names}, err
}

// host reads one host in a transaction that is about to change it, and that others who
// would change it wait for.
func (t *tx) host(id string) (Host, error) {
	found, err := t.store.hosts(t.ctx, t, []string{id}, "LOCKED")
	switch {
	case err != nil:
		return Host{}, err
	case len(found) == 0:
		return Host{}, fmt.Errorf("host %.253q: %w", id, ErrNotFound)
	}
	return found[0], nil
}

// RestoreAsked puts into the audit that somebody has a host load once more what it runs.
func (s *Store) RestoreAsked(ctx context.Context, who, host string) error {
	return s.write(ctx, func(t *tx) error { return t.tell(who, "host.restore", map[string]any{"host": host}) })
}

// Issued keeps that a certificate was issued. Its key becomes one of the host's keys; the
// older ones are good as long as their certificates, since the answer to a renewal may
// have been lost.
func (s *Store) Issued(ctx context.Context, who string, c Certificate) error {
	return s.write(ctx, func(t *tx) error {
		h, err := t.host(c.Host)
		if err != nil {
			return err
		}
		if !h.Revoked.IsZero() {
			return fmt.Errorf("host %s: %w", h.ID, ErrRevoked)
		}
		if err := t.key(c.Host, c.Key); err != nil {
			return err
		}
		_, err = t.do(`insert into certificate (serial, host, key, since, until) values ($1, $2, $3, $4, $5)`,
			c.Serial, c.Host, c.Key, column(c.From), column(c.Until))
		if err != nil {
			return err
		}
		return t.tell(who, "certificate.issue", c)
	})
}

// key makes a key one of a host's: never another's, and none that was revoked.
func (t *tx) key(host, key string) error {
	var owner string
	var revoked int64
	err := t.one([]any{&owner, &revoked}, `select host, revoked from host_key where key = $1`, key)
	switch {
	case errors.Is(err, ErrNotFound):
		_, err = t.do(`insert into host_key (key, host, added, revoked) values ($1, $2, $3, 0)`, key, host, t.store.micros())
		return err
	case err != nil:
		return err
	case revoked != 0:
		return fmt.Errorf("this key: %w", ErrRevoked)
	case owner != host:
		return fmt.Errorf("this key: %w: it is that of host %s", ErrTaken, owner)
	}
	return nil
}

// Authenticate is the host of a key. ErrNotFound: there is none of that name; ErrTaken:
// the key is not one of its keys; ErrRevoked: the host or the key was.
func (s *Store) Authenticate(ctx context.Context, host, key string) (Host, error) {
	found, err := s.hosts(ctx, s.reader, []string{host}, "")
	switch {
	case err != nil:
		return Host{}, err
	case len(found) == 0:
		return Host{}, fmt.Errorf("host %s: %w", host, ErrNotFound)
	case !found[0].Revoked.IsZero():
		return Host{}, fmt.Errorf("host %s: %w: %q", host, ErrRevoked, found[0].RevokedWhy)
	}
	var revoked int64
	err = s.one(ctx, s.reader, []any{&revoked}, `select revoked from host_key where key = $1 and host = $2`, key, host)
	switch {
	case errors.Is(err, ErrNotFound):
		return Host{}, fmt.Errorf("host %s: %w: it has another key", host, ErrTaken)
	case err != nil:
		return Host{}, err
	case revoked != 0:
		return Host{}, fmt.Errorf("the key of host %s: %w", host, ErrRevoked)
	}
	return found[0], nil
}

// Revoke ends what a host and its keys may do. Its name may be enrolled again, with
// another key.
func (s *Store) Revoke(ctx context.Context, who, host, why string) error {
	return s.write(ctx, func(t *tx) error {
		h, err := t.host(host)
		if err != nil {
			return err
		}
		if !h.Revoked.IsZero() {
			return fmt.Errorf("host %s: %w at %s already", host, ErrRevoked, english.Moment(h.Revoked))
		}
		if _, err := t.do(`update host set revoked = $1, revoked_why = $2 where id = $3`, s.micros(), why, host); err != nil {
			return err
		}
		if err := t.revokeKeys(host); err != nil {
			return err
		}
		if err := t.refuseHost(host, who, "the host was revoked"); err != nil {
			return err
		}
		t.changed("host", host)
		return t.tell(who, "host.revoke", map[string]any{"host": host, "why": why})
	})
}

func (t *tx) revokeKeys(host string) error {
	_, err := t.do(`update host_key set revoked = $1 where host = $2 and revoked = 0`, t.store.micros(), host)
	return err
}

// RemoveHost forgets a host; its keys stay revoked. ErrConflict: it has guests.
func (s *Store) RemoveHost(ctx context.Context, who, host string) error {
	return s.write(ctx, func(t *tx) error {
		h, err := t.host(host)
		if err != nil {
			return err
		}
		var guests int
		if err := t.one([]any{&guests}, `select count(*) from guest where host = $1`, host); err != nil {
			return err
		}
		if guests > 0 {
			return fmt.Errorf("host %s: %w: %d guests are on it", host, ErrConflict, guests)
		}
		if err := t.revokeKeys(host); err != nil {
			return err
		}
		if _, err := t.do(`delete from host where id = $1`, host); err != nil {
			return err
		}
		t.changed("host", host)
		return t.tell(who, "host.remove", map[string]any{"host": host, "labels": h.Labels})
	})
}

// SetLabels gives a host other labels, by an order that the policy keys signed and the
// caller has verified.
func (s *Store) SetLabels(ctx context.Context, who, host string, labels map[string]string, order []byte) error {
	text, err := labelText(labels)
	if err != nil {
		return err
	}
	if order == nil {
		order = []byte{}
	}
	return s.write(ctx, func(t *tx) error {
		h, err := t.host(host)
		if err != nil {
			return err
		}
		if _, err := t.do(`update host set labels = $1, labels_order = $2 where id = $3`, text, order, host); err != nil {
			return err
		}
		t.changed("host", host)
		return t.tell(who, "host.labels", map[string]any{"host": host, "from": h.Labels, "to": labels})
	})
}

func labelText(labels map[string]string) (string, error) {
	if labels == nil {
		labels = map[string]string{}
	}
	text, err := json.Marshal(labels)
	if err == nil && len(text) > MaxLabels {
		err = fmt.Errorf("the labels: %w: %d bytes, and %d is the most", ErrTooLarge, len(text), MaxLabels)
	}
	return string(text), err
}

// SetAddresses keeps the addresses that a host has now, of which sets by hosts are made.
// The same ones again are no change.
func (s *Store) SetAddresses(ctx context.Context, who, host string, addresses []netip.Addr) error {
	text, err := list(addresses)
	if err != nil {
		return err
	}
	return s.write(ctx, func(t *tx) error {
		h, err := t.host(host)
		if err != nil {
			return err
		}
		if slices.Equal(h.Addresses, addresses) {
			return nil
		}
		if _, err := t.do(`update host set addresses = $1 where id = $2`, text, host); err != nil {
			return err
		}
		t.changed("host", host)
		return t.tell(who, "host.addresses", map[string]any{"host": host, "from": h.Addresses, "to": addresses})
	})
}

// PutFacts keeps what a host says of itself and returns its SHA-256. Hosts that say the
// same share it.
func (s *Store) PutFacts(ctx context.Context, host string, facts []byte) (string, error) {
	if len(facts) > MaxFacts {
		return "", fmt.Errorf("the facts of host %s: %w: %d bytes, and %d is the most", host, ErrTooLarge, len(facts), MaxFacts)
	}
	sum := sha256.Sum256(facts)
	hash := hex.EncodeToString(sum[:])
	return hash, s.write(ctx, func(t *tx) error {
		h, err := t.host(host)
		if err != nil || h.Facts == hash {
			return err
		}
		if _, err := t.do(`insert into facts (sha256, body) values ($1, $2) on conflict (sha256) do nothing`, hash, facts); err != nil {
			return err
		}
		if _, err := t.do(`update host set facts = $1 where id = $2`, hash, host); err != nil {
			return err
		}
		_, err = t.do(`delete from facts where sha256 = $1 and not exists (select 1 from host where host.facts = $1)`, h.Facts)
		return err
	})
}

// Facts are those of a SHA-256 that a host has.
func (s *Store) Facts(ctx context.Context, hash string) (facts []byte, err error) {
	err = s.one(ctx, s.reader, []any{&facts}, `select body from facts where sha256 = $1`, hash)
	return facts, err
}

// Sighting is what an agent said when it was last heard.
type Sighting struct {
	Host     string
	At       time.Time
	Version  string
	Level    int
	Protocol int
}

// Seen keeps when hosts were last heard. It is no change of desired state.
func (s *Store) Seen(ctx context.Context, sightings []Sighting) error {
	return batches(sightings, func(some []Sighting) error {
		rows := newest(some, func(s Sighting) string { return s.Host }, func(a, b Sighting) bool { return a.At.After(b.At) })
		values := make([][]any, len(rows))
		for i, r := range rows {
			values[i] = []any{r.Host, column(r.At), r.Version, r.Level, r.Protocol}
		}
		text, err := list(values)
		if err != nil {
			return err
		}
		return s.write(ctx, func(t *tx) error {
			_, err := t.do(`update host set seen = cast(v.value->>1 as bigint), version = v.value->>2,
				level = cast(v.value->>3 as bigint), protocol = cast(v.value->>4 as bigint)
				from EACH($1) v where host.id = v.value->>0 and host.seen <= cast(v.value->>1 as bigint)`, text)
			return err
		})
	})
}
