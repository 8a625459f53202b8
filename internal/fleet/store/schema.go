package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// migrations make the tables, one after the other; a database says by its number how many
// it has had. What was released is never changed, only followed.
var migrations = []string{`
create table fleet (
	id bigint not null primary key check (id = 1),
	name text not null,
	incarnation bigint not null,
	revision bigint not null,
	created bigint not null,
	audit_seq bigint not null,
	audit_hash text not null
);
create table change (
	revision bigint not null primary key,
	at bigint not null,
	entries text not null
);
create table audit (
	seq bigint not null primary key,
	at bigint not null,
	who text not null,
	what text not null,
	diff text not null,
	previous text not null,
	hash text not null
);
create table token (
	id text not null primary key,
	secret text not null unique,
	labels text not null,
	uses bigint not null,
	used bigint not null,
	created bigint not null,
	created_by text not null,
	expires bigint not null,
	withdrawn bigint not null
);
create table host (
	id text not null primary key,
	labels text not null,
	labels_order BYTES not null,
	addresses text not null,
	facts text not null,
	version text not null,
	level bigint not null,
	protocol bigint not null,
	enrolled bigint not null,
	seen bigint not null,
	revoked bigint not null,
	revoked_why text not null,
	token text not null
);
create table host_key (
	key text not null primary key,
	host text not null,
	added bigint not null,
	revoked bigint not null
);
create table certificate (
	serial text not null primary key,
	host text not null references host (id) on delete cascade,
	key text not null references host_key (key),
	since bigint not null,
	until bigint not null
);
create index certificate_host on certificate (host);
create table facts (
	sha256 text not null primary key,
	body BYTES not null
);
create table guest (
	id text not null primary key,
	host text not null references host (id),
	interface text not null,
	netns text not null,
	addresses text not null,
	public text not null,
	labels text not null
);
create index guest_host on guest (host);
create table upload (
	id text not null primary key,
	begun bigint not null
);
create table chunk (
	upload text not null references upload (id) on delete cascade,
	n bigint not null,
	body BYTES not null,
	primary key (upload, n)
);
create table blob (
	sha256 text not null primary key,
	size bigint not null,
	upload text not null references upload (id)
);
create table bundle (
	number bigint not null primary key,
	sha256 text not null,
	manifest BYTES not null,
	level bigint not null,
	published bigint not null,
	published_by text not null
);
create table bundle_blob (
	bundle bigint not null references bundle (number),
	sha256 text not null references blob (sha256),
	primary key (bundle, sha256)
);
create table metadata (
	role text not null,
	version bigint not null,
	body BYTES not null,
	primary key (role, version)
);
create table live (
	kind text not null primary key,
	seq bigint not null,
	envelope BYTES not null,
	at bigint not null
);
create table desired (
	host text not null primary key references host (id) on delete cascade,
	bundle bigint not null references bundle (number),
	rollout bigint not null,
	revision bigint not null
);
create table status (
	host text not null primary key references host (id) on delete cascade,
	bundle bigint not null,
	rollout bigint not null,
	revision bigint not null,
	generation text not null,
	mark text not null,
	proof text not null,
	state text not null,
	reason text not null,
	since bigint not null,
	at bigint not null
);
`, `
create table rollout (
	id bigint not null primary key,
	bundle bigint not null references bundle (number),
	version bigint not null,
	phase text not null,
	closed bigint not null,
	plan text not null,
	state text not null,
	created bigint not null,
	changed bigint not null,
	created_by text not null
);
create index rollout_open on rollout (closed);
`, `
create table access (
	id text not null primary key,
	kind text not null,
	secret text not null unique,
	who text not null,
	role text not null,
	hosts text not null,
	member_of text not null,
	created bigint not null,
	created_by text not null,
	expires bigint not null,
	withdrawn bigint not null
);
`, `
create table living (
	seq bigint not null primary key,
	entry text not null
);
create table ban (
	id text not null primary key,
	kind text not null,
	low text not null,
	high text not null,
	expires bigint not null,
	entry text not null
);
create index ban_expires on ban (kind, expires);
create index ban_low on ban (kind, low);
create table applied (
	host text not null primary key references host (id) on delete cascade,
	said text not null,
	at bigint not null
);
`, `
alter table guest add column leaving text not null default '[]';
alter table guest add column revision bigint not null default 0;
create table guest_claim (
	what text not null primary key,
	guest text not null references guest (id) on delete cascade
);
create index guest_claim_guest on guest_claim (guest);
`, `
alter table fleet add column moved text not null default '';
`, `
alter table access add column binds text not null default '';
`, `
alter table guest add column rules text not null default '';
`, `
create table live_list (
	name text not null primary key,
	sha256 text not null,
	previous text not null,
	next bigint not null,
	revision bigint not null,
	body text not null
);
`, `
alter table fleet add column audit_floor bigint not null default 0;
alter table fleet add column audit_floor_hash text not null default '';
`, `
drop table live;
`, `
alter table access add column makers text not null default '[]';
create table request (
	id text not null primary key,
	what text not null,
	operation text not null,
	method text not null,
	path text not null,
	body BYTES not null,
	who text not null,
	access text not null,
	asked bigint not null,
	expires bigint not null,
	state text not null,
	decided bigint not null,
	decided_by text not null,
	alone bigint not null,
	why text not null,
	failure text not null,
	answer BYTES not null
);
create index request_state on request (state, expires);
`, `
alter table token add column approve bigint not null default 0;
`, `
create table notice (
	number bigint not null primary key,
	kind text not null,
	subject text not null,
	text text not null,
	since bigint not null,
	gone bigint not null,
	ended bigint not null
);
create unique index notice_open on notice (kind, subject) where ended = 0;
create table notice_receiver (
	name text not null primary key,
	since bigint not null,
	held bigint not null,
	next bigint not null,
	body text not null
);
create table notice_told (
	receiver text not null references notice_receiver (name) on delete cascade,
	notice bigint not null references notice (number) on delete cascade,
	event text not null,
	at bigint not null,
	primary key (receiver, notice)
);
`, `
create table offered (
	what text not null,
	host text not null references host (id) on delete cascade,
	at bigint not null,
	primary key (what, host)
);
create index offered_at on offered (at);
create index offered_host on offered (host);
`, `
create index notice_told_notice on notice_told (notice);
`, `
alter table fleet add column restored bigint not null default 0;
`, `
create table lifted (
	what text not null primary key,
	at bigint not null
);
create index lifted_at on lifted (at);
`, `
alter table access add column used bigint not null default 0;
`, `
create table draft (
	id text not null primary key,
	title text not null,
	who text not null,
	made bigint not null,
	bundle bigint not null,
	body text not null,
	texts text not null
);
create index draft_made on draft (made);
`, `
alter table request add column asks text not null default '';
`}

// schemaTable has one row, the version of the tables.
const schemaTable = "sluice_schema"

// tables are the names of the tables that there are.
func (s *Store) tables(ctx context.Context, q querier) (names []string, err error) {
	return names, s.query(ctx, q, func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		names = append(names, name)
		return err
	}, s.dialect.tables)
}

// version is that of the tables; 0: there are none.
func (s *Store) version(ctx context.Context, q querier) (version int, err error) {
	tables, err := s.tables(ctx, q)
	if err != nil || len(tables) == 0 {
		return 0, err
	}
	if !slices.Contains(tables, schemaTable) {
		return 0, ErrForeign
	}
	if err := s.one(ctx, q, []any{&version}, `select version from sluice_schema`); err != nil {
		return 0, fmt.Errorf("the version of the tables: %w", err)
	}
	return version, nil
}

// migrate brings the tables to the last of the steps, in one transaction.
func (s *Store) migrate(ctx context.Context, steps []string) error {
	return s.write(ctx, func(t *tx) error {
		if s.dialect.lock != "" {
			if _, err := t.do(s.dialect.lock); err != nil {
				return err
			}
		}
		version, err := s.version(ctx, t)
		if err != nil {
			return err
		}
		switch {
		case version > len(steps):
			return fmt.Errorf("%w: its tables have version %d, and this program knows %d", ErrNewer, version, len(steps))
		case version == len(steps):
			return nil
		case version == 0:
			if _, err := t.do(`create table sluice_schema (version bigint not null)`); err != nil {
				return err
			}
			if _, err := t.do(`insert into sluice_schema (version) values (0)`); err != nil {
				return err
			}
		}
		for _, step := range steps[version:] {
			for _, statement := range strings.Split(step, ";\n") {
				if strings.TrimSpace(statement) == "" {
					continue
				}
				if _, err := t.do(statement); err != nil {
					return err
				}
			}
		}
		return t.must(errors.New("the version of the tables is gone"), `update sluice_schema set version = $1`, len(steps))
	})
}
