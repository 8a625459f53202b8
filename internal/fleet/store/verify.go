package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Report is what [Store.Verify] found.
type Report struct {
	Entries  int64     `json:"entries"`
	Floor    Head      `json:"floor,omitzero"` // up to here they were removed
	Head     Head      `json:"head"`
	Findings []Finding `json:"findings"` // none: the audit is intact
	More     int64     `json:"more"`     // findings that are left out
}

// Finding is one place at which the audit is not what it was.
type Finding struct {
	Seq  int64  `json:"seq"`
	What string `json:"what"`
}

// mostFindings is how many a report holds.
const mostFindings = 100

// Verify reads the whole audit: that no entry was changed, dropped, put in or moved. Who
// can write to the database can write all of it again, with a new head; that only those
// heads show that somebody has kept elsewhere, as agents have in their timestamps.
func (s *Store) Verify(ctx context.Context, kept ...Head) (Report, error) {
	return s.VerifyWith(ctx, nil, kept...)
}

// VerifyWith is Verify of those entries too that were removed, which exported gives in their
// order, or of some of their end; nil: of none.
func (s *Store) VerifyWith(ctx context.Context, exported func(func(Entry) error) error, kept ...Head) (Report, error) {
	r := Report{Findings: []Finding{}}
	err := s.consistent(ctx, func(q querier) error {
		f, _, err := s.fleetRow(ctx, q)
		if err != nil {
			return err
		}
		r.Floor = f.Floor
		c := checker{report: &r, kept: kept, last: f.Floor, floor: f.Floor}
		if exported != nil {
			c.last = Head{}
			if err := exported(c.entry); err != nil {
				return err
			}
			if c.last != f.Floor {
				c.found(c.last.Seq, "what was taken elsewhere ends with entry %d, and entry %d was the last one that was removed, with SHA-256 %s", c.last.Seq, f.Floor.Seq, orNone(f.Floor.Hash))
			}
			c.last = f.Floor
		}
		if err := s.entries(ctx, q, c.entry, ` order by seq`); err != nil {
			return err
		}
		c.end(f.Head)
		return nil
	})
	return r, err
}

// checker goes through the audit in the order of its numbers.
type checker struct {
	report *Report
	kept   []Head
	last   Head // as the last entry was read
	bad    bool // it was found to be changed
	floor  Head
	told   bool // an entry says of the floor that all up to there were removed
}

func (c *checker) found(seq int64, format string, args ...any) {
	if len(c.report.Findings) == mostFindings {
		c.report.More++
		return
	}
	c.report.Findings = append(c.report.Findings, Finding{seq, fmt.Sprintf(format, args...)})
}

func (c *checker) missing(from, to int64) {
	switch {
	case from == to:
		c.found(from, "entry %d is missing", from)
	case from < to:
		c.found(from, "entries %d to %d are missing", from, to)
	}
}

func (c *checker) entry(e Entry) error {
	c.report.Entries++
	c.missing(c.last.Seq+1, e.Seq-1)
	sum, err := e.sum()
	bad := c.bad
	c.bad = err != nil || sum != e.Hash
	switch {
	case err != nil: // of its diff, or its time
		c.found(e.Seq, "entry %d was changed: it is not JSON", e.Seq)
	case sum != e.Hash:
		c.found(e.Seq, "entry %d was changed: its SHA-256 is %s, and it was written with %s", e.Seq, sum, orNone(e.Hash))
	case !bad && e.Seq == c.last.Seq+1 && e.Previous != c.last.Hash:
		c.found(e.Seq, "entry %d follows another entry %d than the one that is there: that one was changed, with a new hash, or this one put in", e.Seq, c.last.Seq)
	}
	if e.What == auditPrune {
		var upto struct {
			Upto Head `json:"upto"`
		}
		c.told = c.told || json.Unmarshal(e.Diff, &upto) == nil && upto.Upto == c.floor
	}
	for _, h := range c.kept {
		if h.Seq == e.Seq && h.Hash != e.Hash {
			c.found(e.Seq, "entry %d has SHA-256 %s, and somebody kept it with %s: the audit was rewritten, or two histories begin here", e.Seq, orNone(e.Hash), h.Hash)
		}
	}
	c.last = Head{e.Seq, e.Hash}
	return nil
}

func (c *checker) end(head Head) {
	c.report.Head = head
	if c.floor.Seq > 0 && !c.told {
		c.found(c.floor.Seq, "entries up to %d are missing, and no entry says that they were removed", c.floor.Seq)
	}
	for _, h := range c.kept {
		if h.Seq == c.floor.Seq && h.Hash != c.floor.Hash {
			c.found(h.Seq, "entry %d was removed with SHA-256 %s, and somebody kept it with %s", h.Seq, c.floor.Hash, h.Hash)
		}
	}
	switch {
	case c.last.Seq < head.Seq:
		c.missing(c.last.Seq+1, head.Seq)
	case c.last != head:
		c.found(c.last.Seq, "entry %d is not the last one that was written: that is entry %d with SHA-256 %s", c.last.Seq, head.Seq, orNone(head.Hash))
	}
	for _, h := range c.kept {
		if h.Seq > max(c.last.Seq, head.Seq) {
			c.found(h.Seq, "entry %d was kept by somebody, and this audit ends with %d: an older copy of the database was restored, or its end cut off", h.Seq, c.last.Seq)
		}
	}
}

func orNone(hash string) string {
	if hash == "" {
		return "none"
	}
	return hash
}

// Standing is how a database stands to a head that somebody kept.
type Standing int

// What it may be.
const (
	Same   Standing = iota // the head is in this audit
	Older                  // the head is ahead: an older copy of the database was restored
	Forked                 // there is another entry of its number: histories differ
)

// Known says how the database stands to a head that an agent was given once. It looks at
// one entry; [Store.Verify] looks at all of them.
func (s *Store) Known(ctx context.Context, head Head) (Standing, error) {
	if head.Seq == 0 {
		return Same, nil
	}
	var hash string
	err := s.one(ctx, s.reader, []any{&hash}, `select hash from audit where seq = $1`, head.Seq)
	if errors.Is(err, ErrNotFound) {
		f, err := s.Fleet(ctx)
		switch {
		case err != nil:
			return Same, err
		case head.Seq < f.Floor.Seq: // only the entries that were taken elsewhere say more
			return Same, nil
		case head == f.Floor:
			return Same, nil
		case head.Seq == f.Floor.Seq:
			return Forked, nil
		}
	}
	switch {
	case errors.Is(err, ErrNotFound):
		return Older, nil
	case err != nil:
		return Same, err
	case hash != head.Hash:
		return Forked, nil
	}
	return Same, nil
}
