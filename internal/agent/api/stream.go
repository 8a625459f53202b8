package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"sluice/internal/engine"
	"sluice/internal/engine/apply"
)

// Lines is the media type of an answer that tells what is done meanwhile.
const Lines = "application/x-ndjson"

const whole = "application/json"

// Line is one line of such an answer. It has one of these.
type Line struct {
	Note     string               `json:"note,omitempty"`
	Warning  string               `json:"warning,omitempty"`
	Shout    string               `json:"shout,omitempty"`
	Progress *apply.Progress      `json:"progress,omitempty"`
	Download *Download            `json:"download,omitempty"`
	Skipped  int                  `json:"skipped,omitempty"` // packets that were logged, for Most
	Logged   *engine.Logged       `json:"logged,omitempty"`
	Entry    *engine.WatchedEntry `json:"entry,omitempty"`
	Top      *engine.Top          `json:"top,omitempty"`
	Dropped  *engine.Dropped      `json:"dropped,omitempty"`
	Drops    *engine.DropCounts   `json:"drops,omitempty"`
	Result   json.RawMessage      `json:"result,omitempty"` // the last line, as Failure is
	Failure  *Failure             `json:"failure,omitempty"`
}

// last says that no line follows.
func (l Line) last() bool { return l.Result != nil || l.Failure != nil }

// lineTime is how long a caller may take to read a line.
const lineTime = 10 * time.Second

// Answer is what a request is answered with. Its methods are safe for concurrent use;
// what comes behind the last line is skipped.
type Answer struct {
	to    io.Writer
	head  http.ResponseWriter // nil: there is none
	lines bool                // the caller reads lines

	mutex sync.Mutex
	begun bool  // the status is written
	ended bool  // the last line is
	err   error // of writing
}

// NewAnswer is the answer to a request. A writer that has a method Failed is told of the
// failure, where there is one.
func NewAnswer(w http.ResponseWriter, r *http.Request) *Answer {
	return &Answer{to: w, head: w, lines: WantsLines(r)}
}

// WantsLines says that who asks reads lines.
func WantsLines(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), Lines) }

// NewLines is an answer in lines to a process that reads them, which passes them on.
func NewLines(to io.Writer) *Answer { return &Answer{to: to, lines: true, begun: true} }

// Note tells what is good to know.
func (a *Answer) Note(text string) { a.Tell(Line{Note: text}) }

// Warn tells what should be read.
func (a *Answer) Warn(text string) { a.Tell(Line{Warning: text}) }

// Shout tells what went wrong on the way.
func (a *Answer) Shout(text string) { a.Tell(Line{Shout: text}) }

// Progress tells how far a change is.
func (a *Answer) Progress(p apply.Progress) { a.Tell(Line{Progress: &p}) }

// Download tells how far a download is.
func (a *Answer) Download(from string, done, total int64) {
	a.Tell(Line{Download: &Download{From: from, Done: done, Total: total}})
}

// Logged reports a packet that was logged.
func (a *Answer) Logged(l engine.Logged) { a.Tell(Line{Logged: &l}) }

// Entry tells what happened to an entry of the connection table.
func (a *Answer) Entry(e engine.WatchedEntry) { a.Tell(Line{Entry: &e}) }

// Top tells what one look has seen.
func (a *Answer) Top(t *engine.Top) { a.Tell(Line{Top: t}) }

// Tell writes a line. Who reads the result alone is told of that one.
func (a *Answer) Tell(l Line) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.ended || !a.lines && !l.last() {
		return
	}
	a.ended = l.last()
	if to, hears := a.head.(interface{ Failed(*Failure) }); hears && l.Failure != nil {
		to.Failed(l.Failure)
	}
	if !a.begun {
		a.begin(l.Failure)
	}
	if a.err != nil {
		return
	}
	var out any = l
	switch {
	case a.lines:
	case l.Failure != nil:
		out = l.Failure
	default:
		out = l.Result
	}
	enc := json.NewEncoder(a.to)
	enc.SetEscapeHTML(false)
	if a.head == nil {
		a.err = enc.Encode(out)
		return
	}
	control := http.NewResponseController(a.head)
	_ = control.SetWriteDeadline(time.Now().Add(lineTime)) // of a connection, which a test's writer has not
	if a.err = enc.Encode(out); a.err == nil {
		if err := control.Flush(); !errors.Is(err, http.ErrNotSupported) { // which a test's writer has not
			a.err = err
		}
	}
}

// Begin tells who reads lines that they are on the way, however long the first one takes.
func (a *Answer) Begin() {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.begun || !a.lines {
		return
	}
	a.begin(nil)
	if err := http.NewResponseController(a.head).Flush(); !errors.Is(err, http.ErrNotSupported) { // which a test's writer has not
		a.err = err
	}
}

// begin writes the status, which a failure decides that comes before anything else.
func (a *Answer) begin(f *Failure) {
	a.begun = true
	status, kind := http.StatusOK, whole
	if f != nil {
		status, a.lines = statuses[f.Kind], false
	}
	if a.lines {
		kind = Lines
	}
	a.head.Header().Set("Content-Type", kind)
	a.head.WriteHeader(status)
}

// End answers with what came of it, of which err is the failure.
func (a *Answer) End(v any, err error) {
	var f *Failure
	switch result, encoding := json.Marshal(v); {
	case errors.As(err, &f):
	case err != nil:
		f = &Failure{Text: err.Error(), Exit: 2}
	case encoding != nil:
		f = &Failure{Text: fmt.Sprintf("the result cannot be written: %v", encoding), Exit: 2}
	default:
		a.Tell(Line{Result: result})
		return
	}
	a.Tell(Line{Failure: f})
}

// Err is why the answer could not be written.
func (a *Answer) Err() error {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.err
}

// ErrEnded says that an answer has no last line.
var ErrEnded = errors.New("the agent ended in the middle; sluice status shows what is in force")

// Await reads an answer and reports its lines until the last one. The error is a
// *Failure, ErrEnded, or that of reading.
func Await(r *http.Response, told func(Line)) (json.RawMessage, error) {
	defer func() {
		_, _ = io.CopyN(io.Discard, r.Body, 1) // the end of it: the connection can be used again
		_ = r.Body.Close()
	}()
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	in := json.NewDecoder(r.Body)
	switch {
	case r.StatusCode != http.StatusOK:
		f := &Failure{}
		if err := in.Decode(f); err != nil || f.Text == "" {
			f = &Failure{Text: "the agent answers " + r.Status, Exit: 2}
		}
		return nil, f
	case kind == whole:
		var result json.RawMessage
		return result, ended(in.Decode(&result))
	}
	return readLines(in, told)
}

// ReadLines reads what a NewLines writes, as Await does.
func ReadLines(from io.Reader, told func(Line)) (json.RawMessage, error) {
	return readLines(json.NewDecoder(from), told)
}

func readLines(in *json.Decoder, told func(Line)) (json.RawMessage, error) {
	for {
		var l Line
		if err := in.Decode(&l); err != nil {
			return nil, ended(err)
		}
		switch {
		case l.Failure != nil && l.Failure.Text == "":
			return nil, errors.New("the agent failed and gave no reason")
		case l.Failure != nil:
			return nil, l.Failure
		case l.Result != nil:
			return l.Result, nil
		}
		told(l)
	}
}

func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrEnded
	}
	return err
}
