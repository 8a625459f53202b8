package web

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"time"
)

// EventStream is the media type of server-sent events.
const EventStream = "text/event-stream"

// WantsEvents says that who asks takes server-sent events.
func WantsEvents(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), EventStream) }

// beat is how often a stream that has nothing to tell shows that it is there.
const beat = 15 * time.Second

// mostLine bounds a line that becomes an event, in bytes.
const mostLine = 32 << 20

// Events sends lines of application/x-ndjson as server-sent events, each at once, until they
// end or nobody reads any more. The answer's head is sent first.
func Events(w http.ResponseWriter, lines io.Reader) error {
	w.Header().Set("Content-Type", EventStream)
	w.Header().Del("Content-Length")
	w.WriteHeader(http.StatusOK)
	to := http.NewResponseController(w)
	if err := to.Flush(); err != nil {
		return err
	}
	read := make(chan []byte)
	over, end := make(chan error, 1), make(chan struct{})
	defer close(end)
	go func() {
		in := bufio.NewScanner(lines)
		in.Buffer(nil, mostLine)
		for in.Scan() {
			select {
			case read <- bytes.Clone(in.Bytes()):
			case <-end:
				return
			}
		}
		over <- in.Err()
	}()
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		var text []byte
		select {
		case line := <-read:
			text = append(append([]byte("data: "), line...), "\n\n"...)
		case <-tick.C:
			text = []byte(":\n\n")
		case err := <-over:
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
		if err := to.Flush(); err != nil {
			return err
		}
	}
}
