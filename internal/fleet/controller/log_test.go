package controller

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/wire"
)

// TestLog: hosts that somebody sees are asked for what they log while it is read, and no longer;
// rows have the names of their hosts, and what is too much is counted.
func TestLog(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	token, _, err := f.access(f.client, "reader", api.Viewer, "host!=web-3")
	ok(t, err)
	web := []*talks{f.talks("web-1"), f.talks("web-2"), f.talks("web-3")}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+f.web+"/api/v1/log?service=ssh&country=DE", http.NoBody)
	ok(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	transport := &http.Transport{TLSClientConfig: f.tls()}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(r) //nolint:bodyclose // it is closed below
	ok(t, err)
	defer answer.Body.Close()
	read := make(chan string, 100_000)
	go func() {
		defer close(read)
		for s := bufio.NewScanner(answer.Body); s.Scan(); {
			read <- s.Text()
		}
	}()
	await := func(want string) (rows int) {
		t.Helper()
		for end := time.After(time.Minute); ; {
			select {
			case line, more := <-read:
				if strings.Contains(line, want) {
					return rows
				}
				if rows++; !more {
					t.Fatalf("it ends without %s", want)
				}
			case <-end:
				t.Fatalf("%s never comes", want)
			}
		}
	}

	q := web[0].question(0)
	if q.Path != "/v1/namespaces/-/log" || q.Query != "country=DE&follow=true&most=1000&service=ssh" || q.Accept != lines {
		t.Errorf("%+v", q)
	}
	web[0].answer(wire.Piece{Id: q.Id, Status: http.StatusOK, Type: lines, Body: []byte("{\"logged\":{\"prefix\":\"one\"}}\n{\"note\":\"none of it\"}\n{\"logged\":{\"half\n{\"skipped\":7}\n")})
	await(`data: {"host":"web-1","logged":{"prefix":"one"}}`)
	await(`data: {"skipped":7}`)
	refuses := web[1].question(0)
	web[1].answer(wire.Piece{Id: refuses.Id, Status: http.StatusForbidden, Type: "application/json", Body: []byte(`{"error":"no\nquestions"}`), Last: true})
	await(`data: {"failure":"no\nquestions","host":"web-2"}`)

	// More than somebody can read is left out, and counted.
	var many strings.Builder
	for i := range 400 {
		fmt.Fprintf(&many, "{\"logged\":{\"number\":%d}}\n", i)
	}
	for sent := 0; sent < 30; {
		web[0].mutex.Lock()
		more := web[0].allowed[q.Id] + wire.Pieces - 1 - sent
		web[0].mutex.Unlock()
		for range more {
			web[0].answer(wire.Piece{Id: q.Id, Body: []byte(many.String())})
			sent++
		}
	}
	await(`data: {"skipped":`)

	cancel()
	for host, n := range map[*talks]int64{web[0]: q.Id} {
		f.until("it is not asked any more", func() bool {
			host.mutex.Lock()
			defer host.mutex.Unlock()
			return host.cancelled[n]
		})
	}
	web[2].mutex.Lock()
	defer web[2].mutex.Unlock()
	if len(web[2].questions) > 0 {
		t.Error("a host of others is asked")
	}
}

// TestLogsAreFew: so many are read at once.
func TestLogsAreFew(t *testing.T) {
	t.Parallel()
	l := &logs{}
	for i := range mostLogs {
		if !l.begin(fmt.Sprint(i / mostLogsOfOne)) {
			t.Fatalf("the log %d is refused", i)
		}
	}
	if l.begin("other") {
		t.Error("there is no end of them")
	}
	l.end("0")
	if l.begin("1") || !l.begin("0") {
		t.Error("one reads too many, or too few")
	}
}

// TestLogsLeaveRoom: a host that is asked for as many logs as are read still answers a question.
func TestLogsLeaveRoom(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	host := f.talks("web-1")
	transport := &http.Transport{TLSClientConfig: f.tls()}
	t.Cleanup(transport.CloseIdleConnections)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var token string
	for i := range mostLogs {
		if i%mostLogsOfOne == 0 {
			var err error
			token, _, err = f.access(f.client, fmt.Sprint("reader-", i), api.Viewer, "")
			ok(t, err)
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://%s/api/v1/log?service=tcp/%d", f.web, i+1), http.NoBody)
		ok(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := transport.RoundTrip(r)
		ok(t, err)
		defer answer.Body.Close()
	}
	host.question(mostLogs - 1)
	go func() {
		q := host.question(mostLogs)
		host.answer(wire.Piece{Id: q.Id, Status: http.StatusTeapot, Body: []byte("it is asked"), Last: true})
	}()
	f.refuses(token, "web-1", "v1", http.StatusTeapot, "it is asked")
}

// TestLogIsShared: a host is asked once for those who read the same, as long as one of them does.
func TestLogIsShared(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	host := f.talks("web-1")
	transport := &http.Transport{TLSClientConfig: f.tls()}
	t.Cleanup(transport.CloseIdleConnections)
	reads := func() (lines *bufio.Scanner, stop func()) {
		token, _, err := f.access(f.client, api.NewSecret(), api.Viewer, "")
		ok(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+f.web+"/api/v1/log", http.NoBody)
		ok(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := transport.RoundTrip(r)
		ok(t, err)
		t.Cleanup(func() { _ = answer.Body.Close() })
		return bufio.NewScanner(answer.Body), cancel
	}
	readers := func() (n int) {
		f.controller.feeds.mutex.Lock()
		defer f.controller.feeds.mutex.Unlock()
		for _, is := range f.controller.feeds.of {
			n += len(is.readers)
		}
		return n
	}
	one, stopOne := reads()
	other, stopOther := reads()
	q := host.question(0)
	f.until("both read it", func() bool { return readers() == 2 })
	says := func(text string, all ...*bufio.Scanner) {
		t.Helper()
		host.answer(wire.Piece{Id: q.Id, Status: http.StatusOK, Type: lines, Body: []byte(`{"logged":{"prefix":"` + text + "\"}}\n")})
		for _, of := range all {
			for of.Scan() && !strings.Contains(of.Text(), text) {
			}
			if of.Err() != nil {
				t.Fatal(of.Err())
			}
		}
	}
	says("first", one, other)
	stopOne()
	f.until("one reads it", func() bool { return readers() == 1 })
	says("second", other)
	host.mutex.Lock()
	if len(host.questions) != 1 || host.cancelled[q.Id] {
		t.Errorf("%d questions, cancelled: %v", len(host.questions), host.cancelled)
	}
	host.mutex.Unlock()
	stopOther()
	f.until("it is not asked any more", func() bool {
		host.mutex.Lock()
		defer host.mutex.Unlock()
		return host.cancelled[q.Id]
	})
}
