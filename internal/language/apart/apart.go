// Package apart asks a server, or takes a file, and has what it holds read by a
// process of its own without rights, which hands back plain ranges. So nothing that
// somebody else wrote is parsed by root. lists and geo ask, each with what reads its
// kind; cli is the body of the process. It is below both, so that there is one way.
package apart

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/fetch"
)

// Question is what to fetch and how to read it.
type Question struct {
	Kind     string        `json:"kind"` // of the reader
	From     string        `json:"from"` // a URL, or the path of File
	File     *os.File      `json:"-"`    // opened by whoever asks, for what is not a URL
	MaxBytes int64         `json:"max-bytes"`
	Whole    time.Duration `json:"whole,omitempty"` // that it may take; 0 is an hour
	SHA256   string        `json:"sha256,omitempty"`
	ETag     string        `json:"etag,omitempty"`
	Modified string        `json:"modified,omitempty"`
	Follow   bool          `json:"follow,omitempty"` // set by Ask where there is a Progress

	// Progress is told how many bytes have come of how many, -1 while that is unknown.
	Progress func(done, total int64) `json:"-"`
}

// Answer is what there is beside the ranges.
type Answer struct {
	NotModified bool   // nothing has changed since ETag or Modified
	Name        string // of the file, without folders, as the server gives it
	ETag        string
	Modified    string // an HTTP date
	About       About
}

// About is what a source says of itself.
type About struct {
	Source      string    `json:"source,omitempty"`
	Licence     string    `json:"licence,omitempty"`
	Attribution string    `json:"attribution,omitempty"`
	Date        time.Time `json:"date,omitzero"`
}

// Row is a range with what the reader says of it: its line, or its country.
type Row struct {
	Tag   uint32
	Range addrset.Range
}

// Reader reads a text, each range into add; name is what errors begin with.
type Reader func(name string, text io.Reader, add func(Row)) (About, error)

// Readers are the readers that there are, by the kinds of questions.
type Readers map[string]Reader

// passedFile is the file that the process is handed, the first behind standard error.
const passedFile = 3

// Serve is the process: it reads one question, fetches, reads and hands back the
// ranges. Lacks is what it could not be confined by.
func Serve(ctx context.Context, in io.Reader, out io.Writer, readers Readers, lacks []string) error {
	var q Question
	if err := json.NewDecoder(io.LimitReader(in, maxHead)).Decode(&q); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	if !fetch.IsURL(q.From) {
		q.File = os.NewFile(passedFile, q.From)
	}
	if q.Follow {
		q.Progress = reporter(out)
	}
	h, rows := answer(ctx, q, readers)
	h.Lacks = lacks
	return writeAnswer(out, h, rows)
}

// reporter reports progress, not more often than a person sees.
func reporter(out io.Writer) func(done, total int64) {
	const pause = 100 * time.Millisecond
	var last time.Time
	return func(done, total int64) {
		if now := time.Now(); now.Sub(last) >= pause || done == total {
			last = now
			// Where nobody reads, the answer fails too.
			_ = writeHead(out, head{Progress: []int64{done, total}})
		}
	}
}

// answer fetches and reads.
func answer(ctx context.Context, q Question, readers Readers) (head, []Row) {
	reader := readers[q.Kind]
	if reader == nil {
		return head{Error: fmt.Sprintf("no reader for %q", q.Kind)}, nil
	}
	var text bytes.Buffer
	got, err := fetch.Stream(ctx, &text, fetch.Request{
		From: q.From, File: q.File, MaxBytes: q.MaxBytes, Whole: q.Whole, SHA256: q.SHA256, ETag: q.ETag, Modified: q.Modified, Progress: q.Progress,
	})
	if err != nil {
		return head{Error: err.Error()}, nil
	}
	h := head{NotModified: got.NotModified, Name: got.Name, ETag: got.ETag, Modified: got.Modified}
	if h.NotModified {
		return h, nil
	}
	var rows []Row
	if h.About, err = reader(fetch.Redact(q.From), &text, func(r Row) { rows = append(rows, r) }); err != nil {
		return head{Error: err.Error()}, nil
	}
	return h, rows
}
