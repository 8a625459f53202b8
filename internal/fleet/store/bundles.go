package store

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Metadata is a signed file of The Update Framework. Of root all versions are kept, since
// a host goes from one to the next; of other roles the newest.
type Metadata struct {
	Role    string
	Version int64
	Body    []byte
}

// Bundle is a signed version of the policy.
type Bundle struct {
	Number    int64     `json:"number"`
	SHA256    string    `json:"sha256"` // of the manifest
	Manifest  []byte    `json:"-"`
	Level     int       `json:"level"` // of the language that it needs
	Blobs     []string  `json:"-"`     // what the manifest names; written by Publish alone
	Published time.Time `json:"published"`
	By        string    `json:"by"`
}

// Publication is what is published at once: a bundle, or nil, and metadata.
type Publication struct {
	Bundle   *Bundle
	Metadata []Metadata
}

// Publish keeps a bundle and metadata, or nothing of them. ErrMissing names the blobs of
// the bundle that are to be sent first; ErrConflict says that a version is not above the
// one that there is, or the number of the bundle is another one's.
func (s *Store) Publish(ctx context.Context, who string, p Publication) error {
	return s.write(ctx, func(t *tx) error {
		diff := map[string]any{}
		if p.Bundle != nil {
			if err := t.bundle(who, *p.Bundle); err != nil {
				return err
			}
			diff["bundle"], diff["sha256"] = p.Bundle.Number, p.Bundle.SHA256
		}
		for _, m := range p.Metadata {
			if err := t.metadata(m); err != nil {
				return err
			}
			diff[m.Role] = m.Version
		}
		t.changed("trust")
		return t.tell(who, "publish", diff)
	})
}

func (t *tx) bundle(who string, b Bundle) error {
	missing, err := t.store.missing(t.ctx, t, b.Blobs)
	switch {
	case err != nil:
		return err
	case len(missing) > 0:
		return fmt.Errorf("bundle %d: %w: %s", b.Number, ErrMissing, strings.Join(missing, " "))
	}
	n, err := t.do(`insert into bundle (number, sha256, manifest, level, published, published_by) values ($1, $2, $3, $4, $5, $6)
		on conflict (number) do nothing`, b.Number, b.SHA256, b.Manifest, b.Level, t.store.micros(), who)
	if err != nil {
		return err
	}
	if n == 0 {
		var sha256 string
		if err := t.one([]any{&sha256}, `select sha256 from bundle where number = $1`, b.Number); err != nil {
			return err
		}
		if sha256 != b.SHA256 {
			return fmt.Errorf("bundle %d: %w: another one has this number", b.Number, ErrConflict)
		}
		return nil // signed again: the same bundle with new metadata
	}
	for _, hash := range b.Blobs {
		_, err := t.do(`insert into bundle_blob (bundle, sha256) values ($1, $2) on conflict (bundle, sha256) do nothing`, b.Number, hash)
		if err != nil {
			return err
		}
	}
	return nil
}

// roleRoot is the role of which every version is kept.
const roleRoot = "root"

func (t *tx) metadata(m Metadata) error {
	var has int64
	if err := t.one([]any{&has}, `select coalesce(max(version), 0) from metadata where role = $1`, m.Role); err != nil {
		return err
	}
	if m.Version <= has {
		return fmt.Errorf("%s %d: %w: there is version %d", m.Role, m.Version, ErrConflict, has)
	}
	if m.Role == roleRoot && has > 0 && m.Version != has+1 {
		return fmt.Errorf("%s %d: %w: there is version %d, and none between is left out", m.Role, m.Version, ErrConflict, has)
	}
	if m.Role != roleRoot {
		if _, err := t.do(`delete from metadata where role = $1`, m.Role); err != nil {
			return err
		}
	}
	_, err := t.do(`insert into metadata (role, version, body) values ($1, $2, $3)`, m.Role, m.Version, m.Body)
	return err
}

// Metadata is the chain of roots in its order, and then the other roles.
func (s *Store) Metadata(ctx context.Context) ([]Metadata, error) { return s.metadata(ctx, s.reader) }

func (s *Store) metadata(ctx context.Context, q querier) ([]Metadata, error) {
	var out []Metadata
	err := s.query(ctx, q, func(scan func(...any) error) error {
		var m Metadata
		err := scan(&m.Role, &m.Version, &m.Body)
		out = append(out, m)
		return err
	}, `select role, version, body from metadata order by case role when 'root' then 0 else 1 end, role, version`)
	return out, err
}

// Bundle is one bundle, with its manifest.
func (s *Store) Bundle(ctx context.Context, number int64) (b Bundle, err error) {
	var published int64
	err = s.one(ctx, s.reader, []any{&b.Number, &b.SHA256, &b.Manifest, &b.Level, &published, &b.By},
		`select number, sha256, manifest, level, published, published_by from bundle where number = $1`, number)
	if err != nil {
		return Bundle{}, fmt.Errorf("bundle %d: %w", number, err)
	}
	b.Published = moment(published)
	return b, nil
}

// Bundles are all bundles, the newest first, without their manifests.
func (s *Store) Bundles(ctx context.Context) ([]Bundle, error) { return s.bundles(ctx, s.reader) }

func (s *Store) bundles(ctx context.Context, q querier) ([]Bundle, error) {
	var out []Bundle
	err := s.query(ctx, q, func(scan func(...any) error) error {
		var b Bundle
		var published int64
		err := scan(&b.Number, &b.SHA256, &b.Level, &published, &b.By)
		b.Published = moment(published)
		out = append(out, b)
		return err
	}, `select number, sha256, level, published, published_by from bundle order by number desc`)
	return out, err
}
