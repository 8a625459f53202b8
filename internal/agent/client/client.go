// Package client has an agent do what a command would do itself: Host is a Door, as the
// engine's host is one, that asks over a Unix socket. Callers: cli; Dial,
// internal/fleet/local.
package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/agent/api"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
)

// Told is where goes what an agent tells meanwhile.
type Told struct {
	Note, Warn, Shout func(text string)
	Progress          func(apply.Progress)
	Download          func(from string, done, total int64)
	Logged            func(engine.Logged)
	Dropped           func(engine.Dropped)
	Drops             func(engine.DropCounts)
	Entry             func(engine.WatchedEntry)
	Top               func(*engine.Top)
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

	turn sync.Mutex    // one request at a time
	kept *net.UnixConn // from the first request on, as long as it is of use
	in   *bufio.Reader
}

// unreachable says that no agent listens.
type unreachable struct{ error }

// dialTime is how long an agent that is there may take to accept.
const dialTime = 5 * time.Second

// connect makes the connection, unless the kept one is there still.
func (h *Host) connect(ctx context.Context) error {
	if h.kept != nil && !over(h.kept) {
		return nil
	}
	h.hangUp()
	c, err := Dial(ctx, h.Socket)
	var other *OtherUserError
	if errors.As(err, &other) && h.Told.Warn != nil {
		h.Told.Warn(other.Error() + ": it is not asked")
	}
	if err != nil {
		return unreachable{err}
	}
	h.kept, h.in = c, bufio.NewReader(c)
	return nil
}

// OtherUserError says that neither root nor the caller listens at a socket.
type OtherUserError struct {
	Socket string
	User   uint32
}

func (e *OtherUserError) Error() string {
	return fmt.Sprintf("%s is served by user %d, and not by root", e.Socket, e.User)
}

// Unwrap is [fs.ErrPermission].
func (e *OtherUserError) Unwrap() error { return fs.ErrPermission }

// Dial connects to an agent's socket, at which root listens, or the caller; where somebody else
// does, that is an [OtherUserError].
func Dial(ctx context.Context, socket string) (*net.UnixConn, error) {
	dialled, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	c := dialled.(*net.UnixConn)
	user, err := listener(c)
	if err == nil && user != 0 && int(user) != os.Geteuid() {
		err = &OtherUserError{socket, user}
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// listener is the user who listens at the other end.
func listener(c *net.UnixConn) (user uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var who *unix.Ucred
	var asked error
	if err := raw.Control(func(fd uintptr) { who, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cmp.Or(err, asked) != nil {
		return 0, cmp.Or(err, asked)
	}
	return who.Uid, nil
}

func (h *Host) hangUp() {
	if h.kept != nil {
		_ = h.kept.Close()
	}
	h.kept = nil
}

// over says that an agent has closed a connection that nothing was asked by.
func over(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	var nothing error
	err = raw.Control(func(fd uintptr) {
		_, _, nothing = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_DONTWAIT|unix.MSG_PEEK)
	})
	return err != nil || !errors.Is(nothing, unix.EAGAIN)
}

// undoTime is how long an agent may take to undo what it has begun.
const undoTime = 2 * time.Minute

// exchange sends a request, and reads the answer. Nothing is sent a second time. When the
// context ends, the agent is told that nobody wants it any more, and says what came of it.
func (h *Host) exchange(ctx context.Context, r *http.Request) (json.RawMessage, error) {
	h.turn.Lock()
	defer h.turn.Unlock()
	if err := h.connect(ctx); err != nil {
		return nil, err
	}
	c := h.kept
	stop := context.AfterFunc(ctx, func() {
		_ = c.CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(undoTime))
	})
	refused := r.Write(c)                     // which may be because it has answered
	answer, err := http.ReadResponse(h.in, r) //nolint:bodyclose // Await closes it
	if err != nil {
		stop()
		h.hangUp()
		return nil, cmp.Or(context.Cause(ctx), refused, err)
	}
	result, err := api.Await(answer, h.told)
	var f *api.Failure
	if !stop() || answer.Close || refused != nil || err != nil && !errors.As(err, &f) {
		h.hangUp()
	}
	return result, err
}

// ask sends a request and awaits the answer; here says that it is to be done here.
func (h *Host) ask(ctx context.Context, method, path string, body any) (result json.RawMessage, here bool, err error) {
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
	result, err = h.exchange(ctx, r)
	var nobody unreachable
	var f *api.Failure
	switch {
	case ctx.Err() == nil && errors.As(err, &nobody), errors.As(err, &f) && f.Untouched():
		return nil, true, nil
	case err != nil && f == nil && ctx.Err() == nil && !errors.Is(err, api.ErrEnded):
		err = fmt.Errorf("ask the agent: %w", err)
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
	if h.Told.Download != nil && l.Download != nil {
		h.Told.Download(l.Download.From, l.Download.Done, l.Download.Total)
	}
	if h.Told.Dropped != nil && l.Dropped != nil {
		h.Told.Dropped(*l.Dropped)
	}
	if h.Told.Drops != nil && l.Drops != nil {
		h.Told.Drops(*l.Drops)
	}
	if h.Told.Logged != nil && l.Logged != nil {
		h.Told.Logged(*l.Logged)
	}
	if h.Told.Entry != nil && l.Entry != nil {
		h.Told.Entry(*l.Entry)
	}
	if h.Told.Top != nil && l.Top != nil {
		h.Told.Top(l.Top)
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
