package agent

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
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
	heard := s.heard()
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
	for range 2 { // of what has no end of its head
		awaitLine(t, heard, " 0 bad-request")
	}
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
	heard := s.heard()
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
	awaitLine(t, heard, "POST /v1/namespaces/{namespace}/bans: the answer is not read, and the connection closed 0")
	s.connected(t, 0)
}

// connected waits until there are so many connections.
func (s *tested) connected(t *testing.T, want int) {
	t.Helper()
	for until := time.Now().Add(enough); ; time.Sleep(10 * time.Millisecond) {
		s.open.mutex.Lock()
		many := len(s.open.open)
		s.open.mutex.Unlock()
		if many == want {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("there are %d connections, and not %d", many, want)
		}
	}
}

// TestLargeBodies: of large bodies few are held at a time, and who sends them slowly holds
// up neither small ones nor root.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	s := newTested(t)
	s.listen(t)
	s.caller.Store(changer)
	const path = "/v1/namespaces/shop/bans"
	begin := func() net.Conn {
		c := s.dial(t)
		if _, err := io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: s\r\nContent-Length: "+strconv.Itoa(large)+"\r\n\r\n{\"bans\":[{\"what\":\""); err != nil {
			t.Fatal(err)
		}
		return c
	}
	var slow []net.Conn
	for range mostLarge {
		slow = append(slow, begin())
	}
	for until := time.Now().Add(enough); len(s.bodies[0]) < mostLarge; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("they are not read")
		}
	}
	waits := begin()
	if status, text := s.ask(t, http.MethodPost, path, bodies["POST /v1/namespaces/{namespace}/bans"]); status != http.StatusOK {
		t.Errorf("a small one: %d %s", status, text)
	}
	one := `{"bans":[{"what":"192.0.2.1"}]` + strings.Repeat(" ", small) + `}`
	s.caller.Store(root)
	if status, text := s.ask(t, http.MethodPost, path, one); status != http.StatusOK {
		t.Errorf("root's: %d %s", status, text)
	}
	for _, c := range slow {
		_ = c.Close()
	}
	_ = waits.Close()
	s.caller.Store(changer)
	if status, text := s.ask(t, http.MethodPost, path, one); status != http.StatusOK {
		t.Errorf("behind them: %d %s", status, text)
	}
	if s.banned.Load() != 3 {
		t.Errorf("%d bans", s.banned.Load())
	}
}

// TestIdleClients: a client that is connected and asks nothing costs little memory.
func TestIdleClients(t *testing.T) {
	s := newTested(t)
	s.listen(t)
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before := held()
	for i := range 1000 {
		c := s.dial(t)
		if i%2 == 1 { // the others say nothing at all
			continue
		}
		if _, err := io.WriteString(c, "GET /v1 HTTP/1.1\r\nHost: s\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil { //nolint:bodyclose // the connection is closed
			t.Fatal(err)
		}
	}
	s.connected(t, 1000)
	// Both ends are in this process.
	each := (held() - before) / 1000
	t.Logf("%d bytes each", each)
	const most = 64 << 10
	if each > most {
		t.Errorf("%d bytes each, and not %d at most", each, most)
	}
}
