package agent

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/engine/apply"
)

// TestHalf: who begins a request and sends no more is closed, and nothing is done for him.
func TestHalf(t *testing.T) {
	t.Parallel()
	s := newTested(t)
	s.listen(t)
	var waiting sync.WaitGroup
	for _, text := range []string{
		"POST /v1/name",
		"POST /v1/namespaces/shop/bans HTTP/1.1\r\nHost: sluice\r\n",
		"POST /v1/namespaces/shop/bans HTTP/1.1\r\nHost: sluice\r\nContent-Length: 40\r\n\r\n{\"bans\":[{\"what\":\"192.0.2.1\"",
	} {
		if testing.Short() && strings.Contains(text, "bans\"") {
			continue // waits for bodyTime
		}
		waiting.Go(func() {
			c := s.dial(t)
			if _, err := io.WriteString(c, text); err != nil {
				t.Error(err)
			}
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%q keeps its connection", text)
			}
		})
	}
	waiting.Wait()
	if s.banned.Load() > 0 {
		t.Error("half a request bans")
	}
}

// TestEndless: of a request without an end no more is read than one may have.
func TestEndless(t *testing.T) {
	t.Parallel()
	s := newTested(t)
	s.listen(t)
	for name, head := range map[string]string{
		"a head": "GET /v1 HTTP/1.1\r\nHost: sluice\r\nX: ",
		"a body": "POST /v1/namespaces/shop/bans HTTP/1.1\r\nHost: sluice\r\nContent-Length: 1073741824\r\n\r\n{\"bans\":[{\"what\":\"",
	} {
		c := s.dial(t)
		answered := make(chan int, 1)
		go func() {
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				answered <- 0
				return
			}
			_ = answer.Body.Close()
			answered <- answer.StatusCode
		}()
		sent, err := io.Copy(c, io.LimitReader(io.MultiReader(strings.NewReader(head), endless{}), 1<<30))
		if err == nil {
			t.Errorf("%s: all of %d bytes is taken", name, sent)
		}
		if sent > large+(1<<20) {
			t.Errorf("%s: %d bytes are taken", name, sent)
		}
		if status := <-answered; status != 0 && status != http.StatusRequestEntityTooLarge && status != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s: %d", name, status)
		}
	}
	if s.banned.Load() > 0 {
		t.Error("it bans")
	}
}

type endless struct{}

func (endless) Read(to []byte) (int, error) {
	for i := range to {
		to[i] = 'x'
	}
	return len(to), nil
}

// TestSlowReader: who does not read his answer holds nobody up, and is closed.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	s := newTested(t)
	s.listen(t)
	var once sync.Once
	s.ban = func() (*apply.Banned, error) {
		out := &apply.Banned{Banned: 1}
		once.Do(func() { out.Refused = []apply.Refused{{Why: strings.Repeat("x", 16<<20)}} })
		return out, nil
	}
	body := bodies["POST /v1/namespaces/{namespace}/bans"]
	slow := s.dial(t).(*net.UnixConn)
	r, err := http.NewRequest(http.MethodPost, "http://sluice/v1/namespaces/shop/bans", strings.NewReader(body)) //nolint:noctx // the connection has a deadline
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Write(slow); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(enough); s.banned.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("it never bans")
		}
	}
	for range 10 {
		if status, text := s.ask(t, http.MethodPost, "/v1/namespaces/shop/bans", body); status != http.StatusOK {
			t.Errorf("%d %s", status, text)
		}
	}
	for until := time.Now().Add(enough); ; time.Sleep(10 * time.Millisecond) {
		s.open.mutex.Lock()
		many := len(s.open.open)
		s.open.mutex.Unlock()
		if many == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d connections stay", many)
		}
	}
}
