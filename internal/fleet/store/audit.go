package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Head is the last entry of the audit, which names all entries before it.
type Head struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
}

// String is the head as one word, which [ParseHead] reads: "SEQ:HASH".
func (h Head) String() string { return strconv.FormatInt(h.Seq, 10) + ":" + h.Hash }

// ParseHead reads what [Head.String] writes.
func ParseHead(text string) (Head, error) {
	seq, hash, _ := strings.Cut(text, ":")
	n, err := strconv.ParseInt(seq, 10, 64)
	raw, bad := hex.DecodeString(hash)
	if err != nil || n < 0 || bad != nil || (n == 0) != (hash == "") || n > 0 && len(raw) != sha256.Size {
		return Head{}, fmt.Errorf("%q is not a head of an audit: write SEQ:HASH, the number of an entry and its SHA-256", text)
	}
	return Head{n, strings.ToLower(hash)}, nil
}

// Entry is what the audit says of one change. Its hash is the SHA-256 of the entry as one
// line of JSON, with Previous and without Hash.
type Entry struct {
	Seq      int64           `json:"seq"` // from 1 without a gap
	At       time.Time       `json:"at"`
	Who      string          `json:"who"`
	What     string          `json:"what"`
	Diff     json.RawMessage `json:"diff"`
	Previous string          `json:"previous"` // the hash of the entry before
	Hash     string          `json:"hash,omitempty"`
}

// sum is the hash that an entry is to have.
func (e Entry) sum() (string, error) {
	e.Hash = ""
	e.At = e.At.UTC()
	line, err := json.Marshal(e)
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:]), err
}

// chain appends what the transaction told behind the head, whose row it has locked.
func (t *tx) chain(head Head) error {
	if len(t.told) == 0 {
		return nil
	}
	at := t.store.micros()
	for _, e := range t.told {
		e.Seq, e.At, e.Previous = head.Seq+1, moment(at), head.Hash
		hash, err := e.sum()
		if err != nil {
			return err
		}
		_, err = t.do(`insert into audit (seq, at, who, what, diff, previous, hash) values ($1, $2, $3, $4, $5, $6, $7)`,
			e.Seq, at, e.Who, e.What, string(e.Diff), e.Previous, hash)
		if err != nil {
			return err
		}
		head = Head{e.Seq, hash}
	}
	_, err := t.do(`update fleet set audit_seq = $1, audit_hash = $2 where id = 1`, head.Seq, head.Hash)
	return err
}

// Audit are at most limit entries behind a number, in their order.
func (s *Store) Audit(ctx context.Context, after int64, limit int) ([]Entry, error) {
	var out []Entry
	err := s.entries(ctx, s.reader, func(e Entry) error {
		out = append(out, e)
		return nil
	}, ` where seq > $1 order by seq limit $2`, after, limit)
	return out, err
}

// EachEntry gives the entries behind a number to f, in their order and as they were at one
// moment.
func (s *Store) EachEntry(ctx context.Context, after int64, f func(Entry) error) error {
	return s.entries(ctx, s.reader, f, ` where seq > $1 order by seq`, after)
}

func (s *Store) entries(ctx context.Context, q querier, f func(Entry) error, where string, args ...any) error {
	return s.query(ctx, q, func(scan func(...any) error) error {
		var e Entry
		var at int64
		var diff string
		if err := scan(&e.Seq, &at, &e.Who, &e.What, &diff, &e.Previous, &e.Hash); err != nil {
			return err
		}
		e.At, e.Diff = moment(at), json.RawMessage(diff)
		return f(e)
	}, `select seq, at, who, what, diff, previous, hash from audit`+where, args...)
}

// auditPrune is what the entry is called that says that older ones were removed.
const auditPrune = "audit.prune"

// PruneAudit removes the entries up to one that the audit has, of which the caller has a copy.
// The entry that reports it names that one, so the chain goes on behind it.
func (s *Store) PruneAudit(ctx context.Context, who string, upto Head) (removed int64, err error) {
	return removed, s.write(ctx, func(t *tx) error {
		var hash string
		if err := t.one([]any{&hash}, `select hash from audit where seq = $1`, upto.Seq); err != nil {
			return fmt.Errorf("entry %d of the audit: %w", upto.Seq, err)
		}
		if hash != upto.Hash {
			return fmt.Errorf("entry %d of the audit: %w", upto.Seq, ErrConflict)
		}
		if removed, err = t.do(`delete from audit where seq <= $1`, upto.Seq); err != nil {
			return err
		}
		if _, err := t.do(`update fleet set audit_floor = $1, audit_floor_hash = $2 where id = 1`, upto.Seq, upto.Hash); err != nil {
			return err
		}
		return t.tell(who, auditPrune, map[string]any{"upto": upto, "removed": removed})
	})
}
