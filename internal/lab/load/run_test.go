package load

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// stalling is a server in virtual time: every answer takes a millisecond, but
// those during which it stalls.
type stalling struct {
	asked atomic.Int64
	// stall is how long the answer to the nth request of all takes in addition.
	stall func(n int64) time.Duration
	// answer is what is written; "" is an answer of 2 bytes.
	answer string
}

// Failed is errors of all kinds.
func (r *Result) Failed() uint64 { return sum(r.Errors) }

const fine = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func (s *stalling) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		r := bufio.NewReader(server)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			n := s.asked.Add(1)
			time.Sleep(time.Millisecond)
			if s.stall != nil {
				time.Sleep(s.stall(n))
			}
			answer := s.answer
			if answer == "" {
				answer = fine
			}
			if _, err := io.WriteString(server, answer); err != nil || req.Close {
				return
			}
		}
	}()
	return client, nil
}

// virtual runs a load in virtual time.
func virtual(t *testing.T, ctx func(*testing.T) context.Context, o Options) (r *Result) {
	t.Helper()
	virtually(t, func(t *testing.T) {
		var err error
		r, err = start(ctx(t), o, clock{prepare: func() {}, sleep: time.Sleep})
		if err != nil {
			t.Fatal(err)
		}
	})
	return r
}

// virtually runs a function in virtual time, until the servers have ended.
func virtually(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t)
		time.Sleep(serverLife)
	})
}

// serverLife is longer than any stall of a server.
const serverLife = 2 * time.Hour

func about(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if d := got - want; d < -want/100 || d > want/100 {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// A server answers in 1 ms and stalls once for 1 s. One connection in a closed
// loop sends one request during the stall, so hardly anything is seen of it as
// measured: corrected, a third of all who asked had to wait.
func TestClosedLoopShowsStall(t *testing.T) {
	s := &stalling{stall: func(n int64) time.Duration {
		if n == 500 {
			return time.Second
		}
		return 0
	}}
	r := virtual(t, (*testing.T).Context, Options{URL: "http://192.0.2.1/", For: 3 * time.Second, Dialer: s.dial})
	if r.Answered < 1998 || r.Answered > 2001 || r.Failed() != 0 {
		t.Errorf("got %d answers and %d errors, want 2,000 and none", r.Answered, r.Failed())
	}
	raw, fixed := PercentilesOf(r.Raw), PercentilesOf(r.Latency)
	about(t, "expected interval", r.Expected, time.Millisecond)
	about(t, "99 % as measured", raw.P99, time.Millisecond)
	about(t, "longest as measured", raw.Max, 1001*time.Millisecond)
	if n := fixed.Count - raw.Count; n < 998 || n > 1001 {
		t.Errorf("%d requests were left out during the stall, want 1,000", n)
	}
	about(t, "50 %, corrected", fixed.P50, time.Millisecond)
	about(t, "90 %, corrected", fixed.P90, 700*time.Millisecond)
	about(t, "99 %, corrected", fixed.P99, 970*time.Millisecond)
	if r.Correction != ByInterval {
		t.Errorf("the correction is %q", r.Correction)
	}

	rates := []uint64{}
	for _, i := range r.Intervals {
		rates = append(rates, i.Answered)
	}
	if len(rates) != 3 || rates[0] < 498 || rates[0] > 500 || rates[1] < 499 || rates[1] > 502 || rates[2] < 999 {
		t.Errorf("requests of each second: got %v, want 499, 500, 1,000", rates)
	}
	about(t, "99 % in the second of the stall's end", r.Intervals[1].Latency.P99, 985*time.Millisecond)
	about(t, "99 % in the second after", r.Intervals[2].Latency.P99, time.Millisecond)
}

// The same server and 100 requests/s by schedule: those that the stall delayed
// count from when they were to start.
func TestOpenLoopShowsStall(t *testing.T) {
	s := &stalling{stall: func(n int64) time.Duration {
		if n == 100 {
			return time.Second
		}
		return 0
	}}
	r := virtual(t, (*testing.T).Context, Options{URL: "http://192.0.2.1/", For: 4 * time.Second, Rate: 100, Dialer: s.dial})
	if r.Answered != 400 || r.Unsent != 0 || r.Failed() != 0 {
		t.Errorf("got %d answers, %d unsent, %d errors, want 400 and none", r.Answered, r.Unsent, r.Failed())
	}
	if r.Correction != FromIntended {
		t.Errorf("the correction is %q", r.Correction)
	}
	if n := r.Raw.TotalCount(); n != 400 || r.Latency.TotalCount() != 400 {
		t.Errorf("an open loop leaves nothing out: got %d and %d latencies, want 400", n, r.Latency.TotalCount())
	}
	about(t, "99 % as measured", PercentilesOf(r.Raw).P99, time.Millisecond)
	// Request 101 was to start 10 ms after the one that took 1,001 ms; each later one
	// waited 9 ms less, a good hundred of them.
	about(t, "75 %", time.Duration(r.Latency.ValueAtPercentile(75)), 101*time.Millisecond)
	about(t, "90 %", PercentilesOf(r.Latency).P90, 641*time.Millisecond)
	about(t, "longest", PercentilesOf(r.Latency).Max, 1001*time.Millisecond)
	if late := r.Lateness.Max(); late > int64(shortestSleep) {
		t.Errorf("the pacer woke connections %v late", time.Duration(late))
	}
}

// A schedule that the server cannot keep: what was never sent is counted, and
// what it waited is seen.
func TestOpenLoopOverloaded(t *testing.T) {
	s := &stalling{stall: func(int64) time.Duration { return 9 * time.Millisecond }}
	r := virtual(t, (*testing.T).Context, Options{URL: "http://192.0.2.1/", For: 10 * time.Second, Rate: 1000, Connections: 5, Dialer: s.dial})
	if total := r.Answered + r.Unsent; total != 10_000 || r.Answered < 4900 || r.Answered > 5005 {
		t.Errorf("got %d answers and %d unsent, want half of 10,000 each", r.Answered, r.Unsent)
	}
	about(t, "as measured", PercentilesOf(r.Raw).P99, 10*time.Millisecond)
	if p := PercentilesOf(r.Latency); p.P90 < 4*time.Second {
		t.Errorf("the queue's wait is missing: %v", p)
	}
}

func TestRateAboveOneConnection(t *testing.T) {
	s := &stalling{stall: func(int64) time.Duration { return 99 * time.Millisecond }}
	r := virtual(t, (*testing.T).Context, Options{URL: "http://192.0.2.1/", For: 5 * time.Second, Rate: 500, Connections: 60, NewConnections: true, Dialer: s.dial})
	if r.Answered != 2500 || r.Unsent != 0 {
		t.Errorf("got %d answers and %d unsent", r.Answered, r.Unsent)
	}
	about(t, "99 %", PercentilesOf(r.Latency).P99, 100*time.Millisecond)
	if r.Late == 0 {
		t.Error("the last ones were answered after the end")
	}
	if r.Answered-r.Late != r.Intervals[0].Answered+r.Intervals[1].Answered+r.Intervals[2].Answered+r.Intervals[3].Answered+r.Intervals[4].Answered {
		t.Error("the intervals do not sum up")
	}
}

// Ctrl-C: what was measured stays, what is under way is cut off at once.
func TestInterrupted(t *testing.T) {
	for name, rate := range map[string]float64{"closed loop": 0, "open loop": 100} {
		t.Run(name, func(t *testing.T) {
			s := &stalling{stall: func(n int64) time.Duration {
				if n > 200 {
					return time.Hour
				}
				return 0
			}}
			began := time.Time{}
			var took time.Duration
			r := virtual(t, func(*testing.T) context.Context {
				ctx, cancel := context.WithTimeout(context.Background(), 5500*time.Millisecond)
				context.AfterFunc(ctx, cancel)
				began = time.Now()
				context.AfterFunc(ctx, func() { took = time.Since(began) })
				return ctx
			}, Options{URL: "http://192.0.2.1/", For: time.Hour, Timeout: 2 * time.Hour, Connections: 4, Rate: rate, Dialer: s.dial})
			if !r.Interrupted || r.Took != 5500*time.Millisecond || took != r.Took {
				t.Errorf("interrupted %v after %v", r.Interrupted, r.Took)
			}
			if r.Answered != 200 || r.Cut != 4 || r.Failed() != 0 || len(r.Intervals) != 6 {
				t.Errorf("got %d answers, %d cut off, %v, %d intervals", r.Answered, r.Cut, r.Errors, len(r.Intervals))
			}
			if last := r.Intervals[5]; last.To != r.Took || last.Open != 4 {
				t.Errorf("the last interval: %+v", last)
			}
			if n := r.Unsent + 204; rate > 0 && (n < 550 || n > 551) {
				t.Errorf("%d unsent", r.Unsent)
			}
			if p := PercentilesOf(r.Latency); p.Max < 3*time.Second {
				t.Errorf("what was cut off had waited for seconds: %v", p)
			}
		})
	}
}

func TestTimeout(t *testing.T) {
	s := &stalling{stall: func(n int64) time.Duration {
		if n == 10 {
			return time.Hour
		}
		return 0
	}}
	synctest.Test(t, func(t *testing.T) {
		r, err := start(t.Context(), Options{URL: "http://192.0.2.1/", For: 5 * time.Second, Timeout: time.Second, Dialer: s.dial}, clock{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Errors[Timeout] != 1 || r.Failed() != 1 || r.Intervals[1].Errors[Timeout] != 1 {
			t.Errorf("got %v", r.Errors)
		}
		about(t, "longest", PercentilesOf(r.Raw).Max, time.Second)
		if r.Connect.TotalCount() != 2 {
			t.Errorf("%d connections, want a new one after the time-out", r.Connect.TotalCount())
		}
		time.Sleep(serverLife)
	})
}

// A connection that cannot be opened is tried again after a pause, not thousands
// of times a second; an open loop charges every request of the schedule.
func TestRefused(t *testing.T) {
	refuse := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	for _, anew := range []bool{false, true} {
		r := virtual(t, (*testing.T).Context, Options{URL: "http://192.0.2.1/", For: time.Second, NewConnections: anew, Dialer: refuse})
		if n := r.Errors[Refused]; n != 10 || r.Failed() != 10 || r.Answered != 0 {
			t.Errorf("closed loop: got %v", r.Errors)
		}
		r = virtual(t, (*testing.T).Context, Options{URL: "http://192.0.2.1/", For: time.Second, NewConnections: anew, Rate: 50, Dialer: refuse})
		if n := r.Errors[Refused]; n < 50 || n > 51 {
			t.Errorf("open loop: got %v", r.Errors)
		}
	}
}

func TestTicks(t *testing.T) {
	var ticks []Tick
	r := virtual(t, (*testing.T).Context, Options{
		URL: "http://192.0.2.1/", For: 2 * time.Second, Every: 250 * time.Millisecond, NewConnections: true, Connections: 3,
		Dialer: new(stalling).dial, Progress: func(k Tick) { ticks = append(ticks, k) },
	})
	if len(ticks) != 8 || len(r.Intervals) != 8 || ticks[7].Done != 1 || ticks[1].Done != 0.25 {
		t.Fatalf("%d ticks, %d intervals: %+v", len(ticks), len(r.Intervals), ticks)
	}
	for n, k := range ticks {
		i := r.Intervals[n]
		if i.From != time.Duration(n)*r.Options.Every || i.To != i.From+r.Options.Every || k.Answered > i.Answered || k.Answered == 0 {
			t.Errorf("interval %d: told %+v, result %+v", n, k.Interval, i)
		}
		if i.Connect.Count == 0 || i.Latency.Count < int64(i.Answered) {
			t.Errorf("interval %d: %+v", n, i)
		}
	}
}

// The last interval has the connections that were open when its time was up, not
// after they were closed for that.
func TestOpenAtTheEnd(t *testing.T) {
	var last Tick
	r := virtual(t, (*testing.T).Context, Options{
		URL: "http://192.0.2.1/", For: 2 * time.Second, Connections: 3, Dialer: new(stalling).dial, Progress: func(k Tick) { last = k },
	})
	if n := r.Intervals[1].Open; last.Done != 1 || last.Open != 3 || n != 3 {
		t.Errorf("told of %d open, in the result %d, want 3", last.Open, n)
	}
}

// An idle connection that the server has closed is no error.
func TestIdleConnectionClosed(t *testing.T) {
	dials := 0
	dial := func(context.Context, string, string) (net.Conn, error) {
		dials++
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			if _, err := http.ReadRequest(bufio.NewReader(server)); err == nil {
				_, _ = io.WriteString(server, fine)
			}
		}()
		return client, nil
	}
	r := virtual(t, (*testing.T).Context, Options{URL: "http://192.0.2.1/", For: 10 * time.Second, Rate: 0.5, Dialer: dial})
	if r.Answered != 5 || r.Failed() != 0 || dials != 5 {
		t.Errorf("got %d answers, %v, %d connections", r.Answered, r.Errors, dials)
	}
	r = virtual(t, (*testing.T).Context, Options{URL: "http://192.0.2.1/", For: time.Second, Rate: 10, Dialer: dial})
	if r.Errors[Closed] != 5 || r.Answered != 5 {
		t.Errorf("closed between two requests that follow at once: got %d answers, %v", r.Answered, r.Errors)
	}
}

func TestBadOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"is no URL of http or https":   {URL: "ftp://192.0.2.1/"},
		"is no URL":                    {URL: "http://[::1"},
		"names no host":                {URL: "http:///page"},
		"has a user in it":             {URL: "http://a:secret@192.0.2.1/"},
		"port 0 is not one of":         {URL: "http://192.0.2.1:0/"},
		"no number of connections":     {URL: "http://192.0.2.1/", Connections: -1},
		"are more than 50000":          {URL: "http://192.0.2.1/", For: time.Hour, Every: time.Millisecond},
		"too short: a millisecond":     {URL: "http://192.0.2.1/", Every: time.Microsecond},
		"is no rate":                   {URL: "http://192.0.2.1/", Rate: -1},
		"not one request":              {URL: "http://192.0.2.1/", Rate: 0.001},
		"is no HTTP method":            {URL: "http://192.0.2.1/", Method: "GE T"},
		`"Accept" is no header`:        {URL: "http://192.0.2.1/", Header: []string{"Accept"}},
		"is set by itself":             {URL: "http://192.0.2.1/", Header: []string{"Connection: close"}},
		"sends no body":                {URL: "http://192.0.2.1/", Body: []byte("x")},
		"open files":                   {URL: "http://192.0.2.1/", Connections: 1 << 31},
		"cannot reach 192.0.2.1":       {URL: "http://192.0.2.1/", Bind: addrs("::1")},
		"is no address of this host":   {URL: "http://192.0.2.1/", Bind: addrs("203.0.113.9")},
		"a time below zero":            {URL: "http://192.0.2.1/", For: -1},
		"belong to a dialer":           {URL: "http://192.0.2.1/", Dialer: new(stalling).dial, Bind: addrs("::1")},
		"find the address of no.inval": {URL: "http://no.invalid/"},
	} {
		_, err := Run(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: got %v, want %q", o, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Options{URL: "http://192.0.2.1/"}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted before the start: got %v", err)
	}
}
