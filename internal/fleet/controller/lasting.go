package controller

import (
	"net/http"
	"time"
)

// lasting is an answer that lasts as long as it takes, while each write and flush of it is done
// within a time. Afterwards nothing is due: in HTTP/2 a deadline that passes ends the stream,
// though nothing is written.
type lasting struct {
	http.ResponseWriter
	within time.Duration
}

func (w lasting) Write(text []byte) (int, error) {
	defer w.due()()
	return w.ResponseWriter.Write(text)
}

// FlushError is for http.ResponseController.
func (w lasting) FlushError() error {
	defer w.due()()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// due sets the deadline, and over takes it away.
func (w lasting) due() (over func()) {
	rc := http.NewResponseController(w.ResponseWriter)
	_ = rc.SetWriteDeadline(time.Now().Add(w.within)) // which a test's writer has not
	return func() { _ = rc.SetWriteDeadline(time.Time{}) }
}

// Unwrap is for http.ResponseController.
func (w lasting) Unwrap() http.ResponseWriter { return w.ResponseWriter }
