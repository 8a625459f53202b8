package controller

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/wire"
)

// asked is a request to the agent of a host, by a token.
func (f *fleet) asked(ctx context.Context, token, host, path string) (*http.Response, error) {
	f.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+f.web+"/api/v1/hosts/"+host+"/agent/"+path, http.NoBody)
	ok(f, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept", "application/x-ndjson")
	t := &http.Transport{TLSClientConfig: f.tls()}
	f.Cleanup(t.CloseIdleConnections)
	return t.RoundTrip(r)
}

// refuses is why a host is not asked.
func (f *fleet) refuses(token, host, path string, status int, why string) {
	f.Helper()
	answer, err := f.asked(f.Context(), token, host, path)
	ok(f, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	ok(f, err)
	if answer.StatusCode != status || !strings.Contains(string(text), why) {
		f.Errorf("%s %s: %d %s", host, path, answer.StatusCode, text)
	}
}

// talks is a host whose answers a test writes.
type talks struct {
	*agent
	*wire.Conn

	mutex     sync.Mutex
	questions []*wire.Question
	allowed   map[int64]int
	cancelled map[int64]bool
	restores  []string // by whom
	desired   int
}

func (f *fleet) talks(host string) *talks {
	f.Helper()
	a, err := f.join(host, f.token(nil, 1))
	ok(f, err)
	t := &talks{agent: a, Conn: a.stream(nil), allowed: map[int64]int{}, cancelled: map[int64]bool{}}
	go func() {
		for {
			m, err := t.Receive(context.Background())
			if err != nil {
				return
			}
			t.mutex.Lock()
			switch {
			case m.Question != nil:
				t.questions = append(t.questions, m.Question)
			case m.Pace != nil && m.Pace.Cancel:
				t.cancelled[m.Pace.Id] = true
			case m.Pace != nil:
				t.allowed[m.Pace.Id] += m.Pace.Pieces
			case m.Restore != nil:
				t.restores = append(t.restores, m.Restore.By)
			case m.Desired != nil:
				t.desired++
			}
			t.mutex.Unlock()
		}
	}()
	f.until(host+" is online", func() bool { return f.states()[host].Online })
	return t
}

func (t *talks) question(n int) (q *wire.Question) {
	t.until("a question", func() bool {
		t.mutex.Lock()
		defer t.mutex.Unlock()
		if len(t.questions) > n {
			q = t.questions[n]
		}
		return q != nil
	})
	return q
}

func (t *talks) answer(p wire.Piece) {
	t.Helper()
	ok(t, t.Send(t.agent.Context(), &wire.Message{Answer: &p}))
}

// TestAskHost: a request comes to the agent of a host as it is, and its answer back, piece by
// piece; what a host could do wrong by it ends that question alone.
func TestAskHost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	token, _, err := f.access(f.client, "reader", api.Viewer, "")
	ok(t, err)
	host := f.talks("web-1")

	go func() {
		q := host.question(0)
		host.answer(wire.Piece{Id: q.Id, Status: http.StatusTeapot, Type: "text/plain", Body: []byte(q.Path + "?" + q.Query + " " + q.Accept)})
		host.answer(wire.Piece{Id: q.Id, Body: []byte(" and more"), Last: true})
	}()
	f.refuses(token, "web-1", "v1/namespaces/-/a%2Fb?since=1&x", http.StatusTeapot, "/v1/namespaces/-/a%2Fb?since=1&x application/x-ndjson and more")
	f.refuses(token, "web-9", "v1", http.StatusNotFound, "there is no host")

	// Who reads slowly is sent no more, and what else the host is told comes meanwhile.
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan *http.Response, 1)
	go func() {
		answer, err := f.asked(ctx, token, "web-1", "v1/namespaces/-/log") //nolint:bodyclose // it is closed below
		if err != nil {
			t.Error(err)
		}
		got <- answer
	}()
	q := host.question(1)
	full := wire.Piece{Id: q.Id, Status: http.StatusOK, Body: bytes.Repeat([]byte{'a'}, wire.MostPiece)}
	for range wire.Pieces {
		host.answer(full)
	}
	answer := <-got
	sent := wire.Pieces
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		host.mutex.Lock()
		more := wire.Pieces + host.allowed[q.Id] - sent
		host.mutex.Unlock()
		for range more {
			host.answer(full)
			sent++
		}
	}
	if sent > 500 {
		t.Errorf("%d pieces were sent to whoever reads none", sent)
	}
	host.mutex.Lock()
	before := host.desired
	host.mutex.Unlock()
	_, err = f.publish("input: {default: drop}\n")
	ok(t, err)
	f.until("what is desired", func() bool {
		host.mutex.Lock()
		defer host.mutex.Unlock()
		return host.desired > before
	})
	cancel()
	_ = answer.Body.Close()
	f.until("it is cancelled", func() bool {
		host.mutex.Lock()
		defer host.mutex.Unlock()
		return host.cancelled[q.Id]
	})
	host.answer(full) // which was under way
	f.until("nothing waits", func() bool {
		f.controller.questions.mutex.Lock()
		defer f.controller.questions.mutex.Unlock()
		return len(f.controller.questions.of) == 0
	})

	// A host that sends more than it may, or goes, ends its answer in the middle.
	halves := func(n int, ends func(q *wire.Question)) {
		t.Helper()
		go func() {
			q := host.question(n)
			host.answer(wire.Piece{Id: q.Id, Status: http.StatusOK, Body: []byte("begun")})
			ends(q)
		}()
		answer, err := f.asked(t.Context(), token, "web-1", "v1")
		ok(t, err)
		defer answer.Body.Close()
		if text, err := io.ReadAll(answer.Body); err == nil {
			t.Errorf("%d bytes are taken for the whole", len(text))
		}
	}
	halves(2, func(q *wire.Question) {
		f.controller.questions.mutex.Lock()
		is := f.controller.questions.of[q.Id]
		f.controller.questions.mutex.Unlock()
		for n := 0; ; n++ { // until they come faster than they are written
			select {
			case <-is.gone:
				return
			default:
				host.answer(wire.Piece{Id: q.Id, Body: full.Body})
			}
			if n > 10_000 {
				t.Error("it may send what it likes")
				return
			}
		}
	})
	halves(3, func(*wire.Question) { host.Cut() })
	f.until("it is offline", func() bool { return !f.states()["web-1"].Online })
	f.refuses(token, "web-1", "v1", http.StatusServiceUnavailable, "web-1 is not connected to this controller: where another one of the fleet has it, ask that one")
}

// TestAskedTooMuch: what one host, one caller and all of them may ask at once has an end.
func TestAskedTooMuch(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	token, _, err := f.access(f.client, "reader", api.Viewer, "")
	ok(t, err)
	host := f.talks("web-1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range mostOfHost {
		go func() {
			if answer, err := f.asked(ctx, token, "web-1", "v1"); err == nil {
				_ = answer.Body.Close()
			}
		}()
	}
	host.question(mostOfHost - 1)
	f.refuses(token, "web-1", "v1", http.StatusTooManyRequests, "web-1 is answering 8 questions already")
	qs := &f.controller.questions
	add := func(n int, session string) {
		qs.mutex.Lock()
		defer qs.mutex.Unlock()
		for range n {
			qs.add("web-2", session)
		}
	}
	add(mostOfCaller, "own")
	if _, err := qs.begin("web-3", "own"); err == nil || !strings.Contains(err.Error(), "you are asking hosts 32 questions already") {
		t.Error(err)
	}
	add(mostQuestions-mostOfCaller-mostOfHost, "other")
	if _, err := qs.begin("web-3", "third"); err == nil || !strings.Contains(err.Error(), "hosts are answering 256 questions already") {
		t.Error(err)
	}
}

// TestAskedAndLeft: who asks and goes does not have the host cut off for what it has sent meanwhile.
func TestAskedAndLeft(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	token, _, err := f.access(f.client, "reader", api.Viewer, "")
	ok(t, err)
	host := f.talks("web-1")
	for n := range 60 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			if answer, err := f.asked(ctx, token, "web-1", "v1"); err == nil {
				_ = answer.Body.Close()
			}
		}()
		q := host.question(n)
		cancel()
		f.until("it is cancelled", func() bool {
			host.mutex.Lock()
			defer host.mutex.Unlock()
			return host.cancelled[q.Id]
		})
		for range wire.Pieces { // they were under way
			host.answer(wire.Piece{Id: q.Id, Status: http.StatusOK, Body: []byte("late")})
		}
	}
	go func() {
		q := host.question(60)
		host.answer(wire.Piece{Id: q.Id, Status: http.StatusTeapot, Body: []byte("still here"), Last: true})
	}()
	f.refuses(token, "web-1", "v1", http.StatusTeapot, "still here")
	f.controller.questions.mutex.Lock()
	defer f.controller.questions.mutex.Unlock()
	if late := f.controller.questions.late["web-1"]; late != 0 {
		t.Errorf("%d more pieces may come late", late)
	}
}

// TestRestoreHost: an operator has a host load what it runs once more, and the audit says so.
func TestRestoreHost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	host := f.talks("web-1")
	status, _ := f.ask(caller{Who: "user:erika", Role: api.Operator}, http.MethodPost, "/api/v1/hosts/web-1/restore")
	f.until("it is told", func() bool {
		host.mutex.Lock()
		defer host.mutex.Unlock()
		return len(host.restores) == 1 && host.restores[0] == "user:erika"
	})
	if n := f.audited("host.restore"); status != http.StatusNoContent || n != 1 {
		t.Errorf("%d, and %d entries of the audit", status, n)
	}
	host.Cut()
	f.until("it is offline", func() bool { return !f.states()["web-1"].Online })
	if status, kind := f.ask(caller{Who: "user:erika", Role: api.Operator}, http.MethodPost, "/api/v1/hosts/web-1/restore"); status != http.StatusServiceUnavailable || kind != wire.KindUnavailable {
		t.Errorf("%d %s", status, kind)
	}
	if n := f.audited("host.restore"); n != 1 {
		t.Errorf("%d entries of the audit", n)
	}
}

// TestAskOlder: an agent of the level before is not asked.
func TestAskOlder(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	token, _, err := f.access(f.client, "reader", api.Viewer, "")
	ok(t, err)
	host := f.talks("web-1")
	f.controller.statuses.mutex.Lock()
	f.controller.statuses.get("web-1").protocol = wire.LevelQuestions - 1
	f.controller.statuses.mutex.Unlock()
	f.refuses(token, "web-1", "v1", http.StatusUpgradeRequired, "the agent of web-1, of version 1.2, is unable to answer questions: upgrade it")
	host.mutex.Lock()
	defer host.mutex.Unlock()
	if len(host.questions) > 0 {
		t.Error("it was asked")
	}
}
