package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/sorting"
)

// Copied is what [Store.CopyTo] has copied, of one moment.
type Copied struct {
	Fleet Fleet            `json:"fleet"`
	Rows  map[string]int64 `json:"rows"` // by table
}

// CopyTo puts all that the store holds at one moment into a database of either kind that holds
// nothing (else ErrNotEmpty), in one transaction of that one. It reads back what it wrote and
// compares each row. Others may write to the store meanwhile.
func (s *Store) CopyTo(ctx context.Context, to *Store) (Copied, error) {
	return s.copyTo(ctx, to, func(*tx) error { return nil })
}

// RestoreTo is CopyTo of a backup, of which the audit there tells. Hosts may have entries of
// the log of this incarnation, or of an earlier one, that the backup does not have: until a
// later one there are no new ones, since they would have the numbers of those.
func (s *Store) RestoreTo(ctx context.Context, to *Store, who string, incarnation int64, diff any) (Copied, error) {
	return s.copyTo(ctx, to, func(t *tx) error {
		if _, err := t.do(`update fleet set restored = $1 where id = 1`, incarnation); err != nil {
			return err
		}
		return t.tell(who, "fleet.restore", diff)
	})
}

func (s *Store) copyTo(ctx context.Context, to *Store, last func(*tx) error) (out Copied, err error) {
	return out, to.write(ctx, func(t *tx) error {
		err := s.consistent(ctx, func(from querier) (err error) {
			if out.Fleet, err = s.fleet(ctx, from); err == nil {
				out.Rows, err = s.copyAll(ctx, from, t)
			}
			return err
		})
		if err != nil {
			return err
		}
		return last(t)
	})
}

func (s *Store) copyAll(ctx context.Context, from querier, to *tx) (map[string]int64, error) {
	tables, err := s.inOrder(ctx, from)
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for _, table := range tables {
		columns, err := s.columns(ctx, from, table)
		if err != nil {
			return out, err
		}
		before, err := to.store.sumOf(ctx, to, table, columns)
		if err != nil {
			return out, err
		}
		if before.n > 0 {
			return out, fmt.Errorf("%w: there are rows in %s", ErrNotEmpty, table)
		}
		read, err := s.copyTable(ctx, from, to, table, columns)
		if err != nil {
			return out, fmt.Errorf("table %s: %w", table, err)
		}
		wrote, err := to.store.sumOf(ctx, to, table, columns)
		if err != nil {
			return out, err
		}
		if wrote != read {
			return out, fmt.Errorf("table %s: %d rows were read, but what was written reads back differently (%d rows)", table, read.n, wrote.n)
		}
		out[table] = read.n
	}
	return out, nil
}

// inOrder are all tables but that of the version, those first to which others refer: as they
// were made.
func (s *Store) inOrder(ctx context.Context, q querier) ([]string, error) {
	tables, err := s.tables(ctx, q)
	if err != nil {
		return nil, err
	}
	tables = slices.DeleteFunc(tables, func(name string) bool { return name == schemaTable })
	made := strings.Join(migrations, "")
	sorting.By(tables, func(a, b string) int {
		return strings.Index(made, "create table "+a+" (") - strings.Index(made, "create table "+b+" (")
	})
	return tables, nil
}

// columns are the names of a table's columns, quoted.
func (s *Store) columns(ctx context.Context, q querier, table string) ([]string, error) {
	rows, err := q.QueryContext(ctx, "select * from "+table+" where 1 = 0")
	if err != nil {
		return nil, fmt.Errorf("ask the database: %w", err)
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	names = slices.DeleteFunc(names, func(name string) bool { return table == "fleet" && name == "moved" }) // of the database, not of the fleet
	for i, name := range names {
		names[i] = `"` + name + `"`
	}
	return names, err
}

// eachRow gives the rows of a table to f, in no order.
func (s *Store) eachRow(ctx context.Context, q querier, table string, columns []string, f func([]any) error) error {
	return s.query(ctx, q, func(scan func(...any) error) error {
		row, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := scan(into...); err != nil {
			return err
		}
		for i, v := range row {
			if b, is := v.([]byte); is && b == nil { // the driver of SQLite says so of no bytes
				row[i] = []byte{}
			}
		}
		return f(row)
	}, "select "+strings.Join(columns, ", ")+" from "+table)
}

// What one statement writes at most.
const (
	copiedRows  = 100
	copiedBytes = 1 << 20
)

func (s *Store) copyTable(ctx context.Context, from querier, to *tx, table string, columns []string) (read sum, err error) {
	var values []any
	bytes := 0
	flush := func() error {
		if len(values) == 0 {
			return nil
		}
		var text strings.Builder
		fmt.Fprintf(&text, "insert into %s (%s) values ", table, strings.Join(columns, ", "))
		for i := range values {
			switch {
			case i == 0:
				text.WriteString("(")
			case i%len(columns) == 0:
				text.WriteString("), (")
			default:
				text.WriteString(", ")
			}
			fmt.Fprintf(&text, "$%d", i+1)
		}
		text.WriteString(")")
		_, err := to.do(text.String(), values...)
		values, bytes = values[:0], 0
		return err
	}
	err = s.eachRow(ctx, from, table, columns, func(row []any) error {
		bytes += read.add(row)
		values = append(values, row...)
		if len(values) >= copiedRows*len(columns) || bytes >= copiedBytes {
			return flush()
		}
		return nil
	})
	if err != nil {
		return read, err
	}
	return read, flush()
}

// sum is the content of a table, in whatever order it was read: a table has no row twice.
type sum struct {
	n    int64
	rows [sha256.Size]byte // the SHA-256 of all rows, exclusive-or
}

// add adds a row, and says how large it is.
func (s *sum) add(row []any) int {
	var text []byte
	for _, v := range row {
		switch v := v.(type) {
		case int64:
			text = binary.BigEndian.AppendUint64(append(text, 'n'), uint64(v)) //nolint:gosec // its bits
		case string:
			text = append(binary.BigEndian.AppendUint64(append(text, 't'), uint64(len(v))), v...)
		case []byte:
			text = append(binary.BigEndian.AppendUint64(append(text, 'b'), uint64(len(v))), v...)
		default:
			text = fmt.Appendf(append(text, 'o'), "%T %v", v, v)
		}
	}
	s.n++
	for i, b := range sha256.Sum256(text) {
		s.rows[i] ^= b
	}
	return len(text)
}

func (s *Store) sumOf(ctx context.Context, q querier, table string, columns []string) (out sum, err error) {
	return out, s.eachRow(ctx, q, table, columns, func(row []any) error {
		out.add(row)
		return nil
	})
}
