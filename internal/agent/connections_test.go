package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/peer"
)

// TestManyConnections keeps room for root, and closes who is idle for longest.
func TestManyConnections(t *testing.T) {
	s := newTested(t)
	heard := s.heard()
	s.listen(t)
	s.caller.Store(nobody)
	var open []net.Conn
	for range mostOfUser + 1 {
		open = append(open, s.dial(t))
	}
	if _, err := open[0].Read(make([]byte, 1)); !errors.Is(err, io.EOF) && err == nil {
		t.Errorf("the first one stays: %v", err)
	}
	awaitLine(t, heard, "a connection is closed: too many are open 4001 too-many")
	for user := range mostConnections/mostOfUser + 1 {
		s.caller.Store(&peer.Peer{UID: uint32(5000 + user)})
		for range mostOfUser {
			s.dial(t)
		}
	}
	s.caller.Store(root)
	if status, text := s.ask(t, http.MethodGet, "/v1", ""); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	s.open.mutex.Lock()
	defer s.open.mutex.Unlock()
	if many := len(s.open.open); many > mostConnections {
		t.Errorf("%d connections", many)
	}
}

// FuzzConnection has a connection send anything. Nothing of the agent's breaks by it, and
// a ban is one that was asked for.
func FuzzConnection(f *testing.F) {
	body := bodies["POST /v1/namespaces/{namespace}/bans"]
	for _, text := range []string{
		"GET /v1 HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/namespaces/shop/generations HTTP/1.1\r\nHost: x\r\n\r\n",
		fmt.Sprintf("POST /v1/namespaces/shop/bans?reason=x HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\nSluice-Wait: 0\r\nContent-Length: %d\r\n\r\n%s", len(body), body),
		"POST /v1/namespaces/shop/bans/lift HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"what\r\n0\r\n\r\n",
		"POST /v1/namespaces/shop/sync HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
		"GET /v1/namespaces/%2e%2e/generations/-1 HTTP/1.0\r\nSluice-Protocol: 1\r\nSluice-State: /\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := newTested(t)
		s.caller.Store(root)
		panicked := &bytes.Buffer{}
		h := s.http()
		h.ErrorLog = nil
		h.Handler = recovered(h.Handler, panicked)
		l := &once{conns: make(chan net.Conn, 1)}
		ours, theirs := pair(t)
		l.conns <- theirs
		var serving sync.WaitGroup
		serving.Go(func() { _ = h.Serve(l) })
		serving.Go(func() { _, _ = io.Copy(io.Discard, ours) })
		_ = ours.SetWriteDeadline(time.Now().Add(enough))
		_, _ = ours.Write(text)
		_ = ours.(*net.UnixConn).CloseWrite()
		_ = h.Shutdown(t.Context())
		_ = ours.Close()
		serving.Wait()
		if panicked.Len() > 0 {
			t.Errorf("%q: %s", text, panicked)
		}
		if s.banned.Load() > 0 && !bytes.Contains(text, []byte("bans")) {
			t.Errorf("%q bans", text)
		}
	})
}

func pair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]net.Conn
	for i, end := range ends {
		f := os.NewFile(uintptr(end), "end")
		if conns[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	return conns[0], conns[1]
}

func recovered(next http.Handler, told io.Writer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if broken := recover(); broken != nil && broken != any(http.ErrAbortHandler) {
				fmt.Fprint(told, broken)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// once accepts what it is given.
type once struct{ conns chan net.Conn }

func (o *once) Accept() (net.Conn, error) {
	c, more := <-o.conns
	if !more {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (o *once) Close() error { close(o.conns); return nil }

func (o *once) Addr() net.Addr { return &net.UnixAddr{} }
