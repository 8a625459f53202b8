package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"
)

// chunkSize is how many bytes of a blob a row holds, and a reader in memory.
const chunkSize = 256 << 10

// abandoned is after how long [Store.Prune] removes an upload that did not end, and a blob
// of no bundle.
const abandoned = 24 * time.Hour

// PutBlob keeps a blob of at most limit bytes, read from r and checked against its
// SHA-256 (hexadecimal). No transaction is open while it reads. One that is there
// already is not read.
func (s *Store) PutBlob(ctx context.Context, hash string, limit int64, r io.Reader) error {
	missing, err := s.MissingBlobs(ctx, []string{hash})
	if err != nil || len(missing) == 0 {
		return err
	}
	upload := rand.Text()
	err = s.write(ctx, func(t *tx) error {
		_, err := t.do(`insert into upload (id, begun) values ($1, $2)`, upload, s.micros())
		return err
	})
	if err != nil {
		return err
	}
	size, err := s.putChunks(ctx, upload, hash, limit, r)
	kept := false
	if err == nil {
		err = s.write(ctx, func(t *tx) error {
			var begun int64
			err := t.one([]any{&begun}, `select begun from upload where id = $1 LOCKED`, upload)
			if errors.Is(err, ErrNotFound) || err == nil && begun == 0 {
				return fmt.Errorf("blob %s: %w: it took more than %s to come, and was given up", hash, ErrConflict, abandoned)
			}
			if err != nil {
				return err
			}
			n, err := t.do(`insert into blob (sha256, size, upload) values ($1, $2, $3) on conflict (sha256) do nothing`, hash, size, upload)
			kept = n > 0
			return err
		})
	}
	if kept {
		return err
	}
	// Also where another upload of the same was quicker.
	return errors.Join(err, s.write(context.WithoutCancel(ctx), func(t *tx) error {
		_, err := t.do(`delete from upload where id = $1 and not exists (select 1 from blob where blob.upload = upload.id)`, upload)
		return err
	}))
}

func (s *Store) putChunks(ctx context.Context, upload, hash string, limit int64, r io.Reader) (size int64, err error) {
	sum := sha256.New()
	buffer := make([]byte, chunkSize)
	for n := 0; ; n++ {
		read, err := io.ReadFull(r, buffer)
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !ended {
			return 0, fmt.Errorf("read blob %s: %w", hash, err)
		}
		if size += int64(read); size > limit {
			return 0, fmt.Errorf("blob %s: %w: more than %d bytes", hash, ErrTooLarge, limit)
		}
		sum.Write(buffer[:read])
		if read > 0 {
			err = s.write(ctx, func(t *tx) error {
				_, err := t.do(`insert into chunk (upload, n, body) values ($1, $2, $3)`, upload, n, buffer[:read])
				return err
			})
			if err != nil {
				return 0, err
			}
		}
		if ended {
			break
		}
	}
	if is := hex.EncodeToString(sum.Sum(nil)); is != hash {
		return 0, fmt.Errorf("blob %s: %w: it is %s", hash, ErrHash, is)
	}
	return size, nil
}

// MissingBlobs are those of the hashes that the store does not have. The others stay for a
// day at least: who asks is about to publish what they are part of.
func (s *Store) MissingBlobs(ctx context.Context, hashes []string) (missing []string, err error) {
	names, err := list(hashes)
	if err != nil {
		return nil, err
	}
	return missing, s.write(ctx, func(t *tx) error {
		_, err := t.do(`update upload set begun = $2 where id in (select upload from blob where sha256 in NAMES($1))`, names, s.micros())
		if err == nil {
			missing, err = s.missing(ctx, t, hashes)
		}
		return err
	})
}

func (s *Store) missing(ctx context.Context, q querier, hashes []string) ([]string, error) {
	where, args, err := named("sha256", hashes)
	if err != nil || where == "" {
		return nil, err
	}
	have := map[string]bool{}
	err = s.query(ctx, q, func(scan func(...any) error) error {
		var hash string
		err := scan(&hash)
		have[hash] = true
		return err
	}, `select sha256 from blob`+where, args...)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, hash := range hashes {
		if !have[hash] {
			have[hash] = true // told once
			out = append(out, hash)
		}
	}
	return out, nil
}

// Blob reads a blob from the database, a piece at a time. It is an io.ReadSeekCloser, for
// http.ServeContent.
type Blob struct {
	Size int64

	ctx    context.Context //nolint:containedctx // io.Reader has none
	store  *Store
	upload string
	at     int64
	chunk  int64 // the number of the one that is held
	held   []byte
}

// OpenBlob opens a blob by its SHA-256 (hexadecimal). Reading ends with the context.
func (s *Store) OpenBlob(ctx context.Context, hash string) (*Blob, error) {
	b := &Blob{ctx: ctx, store: s, chunk: -1}
	if err := s.one(ctx, s.reader, []any{&b.Size, &b.upload}, `select size, upload from blob where sha256 = $1`, hash); err != nil {
		return nil, fmt.Errorf("blob %s: %w", hash, err)
	}
	return b, nil
}

// Read implements io.Reader.
func (b *Blob) Read(p []byte) (int, error) {
	if b.at >= b.Size {
		return 0, io.EOF
	}
	if n := b.at / chunkSize; n != b.chunk {
		b.chunk, b.held = -1, nil
		err := b.store.one(b.ctx, b.store.reader, []any{&b.held}, `select body from chunk where upload = $1 and n = $2`, b.upload, n)
		if err != nil {
			return 0, fmt.Errorf("piece %d of a blob: %w", n, err)
		}
		b.chunk = n
	}
	from := b.at % chunkSize
	if from >= int64(len(b.held)) {
		return 0, fmt.Errorf("piece %d of a blob: %w", b.chunk, io.ErrUnexpectedEOF)
	}
	n := copy(p, b.held[from:])
	b.at += int64(n)
	return n, nil
}

// Seek implements io.Seeker.
func (b *Blob) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.at
	case io.SeekEnd:
		offset += b.Size
	}
	if offset < 0 {
		return 0, errors.New("seek: before the beginning")
	}
	b.at = offset
	return offset, nil
}

// Close implements io.Closer.
func (*Blob) Close() error { return nil }
