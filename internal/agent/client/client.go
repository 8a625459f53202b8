// Package client has an agent do what a command would do itself: Host is a Door, as the
// engine's host is one, that asks over a Unix socket. Callers: cli.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/engine/apply"
)

// Told is where goes what an agent tells meanwhile.
type Told struct {
	Note, Warn, Shout func(text string)
	Progress          func(apply.Progress)
}

// Host is a host whose agent is asked. Where no agent listens, or it does not serve what
// is asked of it and has begun nothing, the Door does it. Once a request was accepted,
// nothing is done a second time.
type Host struct {
	Door
	Told      Told
	Meant     api.Meant
	Namespace string // "" is that of the caller
	Socket    string

	once sync.Once
	kept *http.Transport // with the connection, from the first request on

	mutex sync.Mutex
	conn  *net.UnixConn
	left  bool // what is asked for is not wanted any more
}

// unreachable says that no agent listens.
type unreachable struct{ error }

// dialTime is how long an agent that is there may take to accept.
const dialTime = 5 * time.Second

func (h *Host) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "unix", h.Socket)
	if err != nil {
		return nil, unreachable{err}
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.left {
		return nil, errors.Join(context.Canceled, c.Close())
	}
	h.conn = c.(*net.UnixConn)
	return c, nil
}

// undoTime is how long an agent may take to undo what it has begun.
const undoTime = 2 * time.Minute

// leave says to the agent that nobody wants any more what was asked for. It says what
// came of it.
func (h *Host) leave() {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.left = true; h.conn != nil {
		_ = h.conn.CloseWrite()
		_ = h.conn.SetReadDeadline(time.Now().Add(undoTime))
	}
}

// ask sends a request and awaits the answer; here says that it is to be done here.
func (h *Host) ask(ctx context.Context, method, path string, body any) (result json.RawMessage, here bool, err error) {
	h.once.Do(func() { h.kept = &http.Transport{DialContext: h.dial} })
	sent, err := json.Marshal(body)
	if err != nil {
		return nil, false, err
	}
	if body == nil {
		sent = nil
	}
	namespace := h.Namespace
	if namespace == "" {
		namespace = "-"
	}
	if ctx.Err() != nil {
		return nil, false, context.Cause(ctx)
	}
	r, err := http.NewRequestWithContext(context.WithoutCancel(ctx), method, "http://sluice/v1/namespaces/"+url.PathEscape(namespace)+"/"+path, bytes.NewReader(sent))
	if err != nil {
		return nil, false, err
	}
	h.Meant.Set(r)
	r.Header.Set("Accept", api.Lines)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	defer func() {
		if h.mutex.Lock(); h.left {
			h.kept.CloseIdleConnections()
			h.left, h.conn = false, nil
		}
		h.mutex.Unlock()
	}()
	defer context.AfterFunc(ctx, h.leave)()
	answer, err := h.kept.RoundTrip(r) //nolint:bodyclose // Await closes it
	if err != nil {
		var nobody unreachable
		switch {
		case ctx.Err() != nil:
			return nil, false, context.Cause(ctx)
		case errors.As(err, &nobody):
			return nil, true, nil
		}
		return nil, false, fmt.Errorf("ask the agent: %w", err)
	}
	result, err = api.Await(answer, h.told)
	var f *api.Failure
	if errors.As(err, &f) && f.Untouched() {
		return nil, true, nil
	}
	return result, false, err
}

func (h *Host) told(l api.Line) {
	tell := func(to func(string), text string) {
		if to != nil && text != "" {
			to(text)
		}
	}
	tell(h.Told.Note, l.Note)
	tell(h.Told.Warn, l.Warning)
	tell(h.Told.Shout, l.Shout)
	if h.Told.Progress != nil && l.Progress != nil {
		h.Told.Progress(*l.Progress)
	}
}

// asked is what an agent answers, or what is done here instead. With a failure it is what
// was done before.
func asked[T any](ctx context.Context, h *Host, method, path string, body any, here func() (T, error)) (out T, err error) {
	result, itself, err := h.ask(ctx, method, path, body)
	if itself {
		return here()
	}
	var f *api.Failure
	if errors.As(err, &f) {
		result = f.Result
	}
	if len(result) > 0 {
		if bad := json.Unmarshal(result, &out); bad != nil && err == nil {
			err = fmt.Errorf("read the agent's answer: %w", bad)
		}
	}
	return out, err
}
