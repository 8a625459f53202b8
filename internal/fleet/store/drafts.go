package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Draft is a policy that somebody proposes: texts in place of those of a bundle.
type Draft struct {
	ID     string // of the content
	Title  string
	Who    string
	Made   time.Time
	Bundle int64 // on which it was made
	DraftBody
	Texts map[string]string // by path; nil where they were not asked for
}

// DraftBody is what is known of a draft since it was made.
type DraftBody struct {
	Files   []DraftFile `json:"files"`
	Opens   bool        `json:"opens"` // something passes by it that did not before
	Summary []string    `json:"summary"`
}

// DraftFile is a file that a draft changes. A SHA-256 is "" where there is no such file.
type DraftFile struct {
	Name   string `json:"name"`
	Before string `json:"before,omitempty"` // SHA-256 in the bundle
	SHA256 string `json:"sha256,omitempty"`
}

// So many drafts are kept, and of one person, for so long.
const (
	mostDrafts   = 200
	mostDraftsOf = 50
	draftFor     = 90 * 24 * time.Hour
)

// Propose keeps a draft; one of the same content stays as it is. ErrTooMany where too many are
// kept.
func (s *Store) Propose(ctx context.Context, d Draft) (Draft, error) {
	body, err := json.Marshal(d.DraftBody)
	if err != nil {
		return d, err
	}
	texts, err := json.Marshal(d.Texts)
	if err != nil {
		return d, err
	}
	d.Title, d.Who, d.Made = plain(d.Title), plain(d.Who), time.UnixMicro(s.micros()).UTC()
	out := d
	return out, s.write(ctx, func(t *tx) error {
		var all, own int
		if err := t.one([]any{&all, &own}, `select count(*), coalesce(sum(case when who = $1 then 1 else 0 end), 0) from draft`, d.Who); err != nil {
			return err
		}
		is, err := t.store.draft(ctx, t, d.ID)
		switch {
		case err == nil:
			out = is
			return nil
		case !errors.Is(err, ErrNotFound):
			return err
		case own >= mostDraftsOf:
			return fmt.Errorf("%w: %s has %d drafts; remove those that nobody needs", ErrTooMany, d.Who, own)
		case all >= mostDrafts:
			return fmt.Errorf("%w: there are %d drafts; remove those that nobody needs", ErrTooMany, all)
		}
		if _, err := t.do(`insert into draft (id, title, who, made, bundle, body, texts) values ($1, $2, $3, $4, $5, $6, $7)`,
			d.ID, d.Title, d.Who, column(d.Made), d.Bundle, string(body), string(texts)); err != nil {
			return err
		}
		var files []string
		for _, f := range d.Files {
			files = append(files, f.Name)
		}
		out = d
		return t.tell(d.Who, "draft.create", map[string]any{"draft": d.ID, "title": d.Title, "bundle": d.Bundle, "files": files, "opens": d.Opens})
	})
}

// Draft is one with its texts; ErrNotFound.
func (s *Store) Draft(ctx context.Context, id string) (Draft, error) {
	return s.draft(ctx, s.reader, id)
}

func (s *Store) draft(ctx context.Context, q querier, id string) (out Draft, err error) {
	err = s.query(ctx, q, func(scan func(...any) error) (err error) {
		var texts string
		if out, err = scanDraft(scan, &texts); err != nil {
			return err
		}
		return json.Unmarshal([]byte(texts), &out.Texts)
	}, `select id, title, who, made, bundle, body, texts from draft where id = $1`, id)
	if err == nil && out.ID == "" {
		err = fmt.Errorf("draft %.64q: %w", id, ErrNotFound)
	}
	return out, err
}

// Drafts are all, the newest first, without their texts.
func (s *Store) Drafts(ctx context.Context) (out []Draft, err error) {
	err = s.query(ctx, s.reader, func(scan func(...any) error) error {
		d, err := scanDraft(scan)
		out = append(out, d)
		return err
	}, `select id, title, who, made, bundle, body from draft order by made desc, id`)
	return out, err
}

// RemoveDraft forgets one; ErrNotFound.
func (s *Store) RemoveDraft(ctx context.Context, who, id string) error {
	return s.write(ctx, func(t *tx) error {
		if err := t.must(ErrNotFound, `delete from draft where id = $1`, id); err != nil {
			return fmt.Errorf("draft %.64q: %w", id, err)
		}
		return t.tell(who, "draft.remove", map[string]any{"draft": id})
	})
}

// PruneDrafts removes those that were made more than three months ago.
func (s *Store) PruneDrafts(ctx context.Context) error {
	return s.write(ctx, func(t *tx) error {
		_, err := t.do(`delete from draft where made < $1`, s.Now().Add(-draftFor).UnixMicro())
		return err
	})
}

func scanDraft(scan func(...any) error, more ...any) (d Draft, err error) {
	var body string
	var made int64
	if err = scan(slices.Concat([]any{&d.ID, &d.Title, &d.Who, &made, &d.Bundle, &body}, more)...); err == nil {
		err = json.Unmarshal([]byte(body), &d.DraftBody)
	}
	d.Made = moment(made)
	return d, err
}
