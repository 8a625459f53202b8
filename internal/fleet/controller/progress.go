package controller

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"

	"sluice/internal/fleet/wire"
	"sluice/web"
)

// ndjson is the media type of lines of JSON.
const ndjson = "application/x-ndjson"

// progress is a line of an answer that takes long; the last one has the result, or why there is none.
type progress struct {
	Progress *step         `json:"progress,omitempty"`
	Result   any           `json:"result,omitempty"`
	Error    *wire.Failure `json:"error,omitempty"`
}

type step struct {
	Done int `json:"done"`
	Of   int `json:"of"`
}

// answer answers a question about a policy, and tells who takes lines how far it is.
func (o operator) answer(w http.ResponseWriter, r *http.Request, who caller, texts map[string]string, answer func(*judging) (any, error)) {
	events := web.WantsEvents(r)
	if !events && !strings.Contains(r.Header.Get("Accept"), ndjson) {
		out, err := o.judged(w, r, who, texts, answer)
		o.done(w, out, err)
		return
	}
	lines, to := io.Pipe()
	var mutex sync.Mutex
	encoder := json.NewEncoder(to)
	say := func(line progress) {
		mutex.Lock()
		defer mutex.Unlock()
		_ = encoder.Encode(line) // who has gone ends the question
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		out, err := o.judged(w, r, who, texts, func(is *judging) (any, error) {
			is.progress = func(n, of int) { say(progress{Progress: &step{n, of}}) }
			return answer(is)
		})
		if err != nil {
			say(progress{Error: refusal(err)})
		} else {
			say(progress{Result: out})
		}
		_ = to.Close()
	}()
	if events {
		_ = web.Events(w, lines)
	} else {
		w.Header().Set("Content-Type", ndjson)
		_, _ = io.Copy(flushed{w, http.NewResponseController(w)}, lines)
	}
	_ = lines.Close()
	<-over
}

// flushed sends all that is written at once.
type flushed struct {
	io.Writer

	to *http.ResponseController
}

func (f flushed) Write(text []byte) (int, error) {
	n, err := f.Writer.Write(text)
	if err == nil {
		err = f.to.Flush()
	}
	return n, err
}
