package load

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
)

// short is long enough for a few requests.
const short = 200 * time.Millisecond

func load(t *testing.T, o Options) *Result {
	t.Helper()
	switch {
	case o.For == 0 && o.Requests == 0:
		o.For = short
	case o.For == 0:
		o.For = time.Minute
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// raw serves every connection by a function.
func raw(t *testing.T, serve func(net.Conn)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return "http://" + l.Addr().String() + "/"
}

// bodies are the forms in which a response may come.
var bodies = map[string]func(w http.ResponseWriter, r *http.Request){
	"length":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") },
	"nothing": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
	"chunks": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		for range 3 {
			_, _ = io.WriteString(w, strings.Repeat("x", 3000))
			_ = http.NewResponseController(w).Flush()
		}
		w.Header().Set("X-Sum", "9000")
	},
	"until the end": func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, "HTTP/1.0 200 OK\r\n\r\nhello")
		_ = conn.Close()
	},
	"large header": func(w http.ResponseWriter, _ *http.Request) {
		for i := range 20 {
			w.Header().Set("X-"+strconv.Itoa(i), strings.Repeat("x", 1000))
		}
		_, _ = io.WriteString(w, "hello")
	},
	"large body": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "300000")
		_, _ = w.Write(make([]byte, 300_000))
	},
	"early hints": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "hello")
	},
	"closed": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		_, _ = io.WriteString(w, "hello")
	},
}

// Every form of response is read to its end: what the server counts is what was
// answered, over connections kept alive and new ones, http and https.
func TestResponses(t *testing.T) {
	const requests = 12
	for name, serve := range bodies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, secure := range []bool{false, true} {
				for _, o := range []Options{{}, {NewConnections: true}, {Method: http.MethodHead}, {Rate: 100}} {
					if o.Method != "" && (name == "until the end" || name == "chunks") {
						continue // its server sends a body to HEAD too, or closes
					}
					var connections sync.Map
					var opened int64
					var mu sync.Mutex
					s := httptest.NewUnstartedServer(http.HandlerFunc(serve))
					s.Config.ErrorLog = log.New(io.Discard, "", 0)
					s.Config.ConnState = func(c net.Conn, state http.ConnState) {
						if _, there := connections.LoadOrStore(c, true); !there && state == http.StateNew {
							mu.Lock()
							opened++
							mu.Unlock()
						}
					}
					if secure {
						s.StartTLS()
					} else {
						s.Start()
					}
					o.URL, o.Connections, o.Insecure, o.Requests = s.URL, 4, true, requests
					r := load(t, o)
					s.Close()
					if r.Answered != requests || r.Unsent != 0 || r.Failed() != 0 || r.Cut != 0 || r.Sent == 0 || r.Received == 0 {
						t.Errorf("%+v: %d answers, %v, %d bytes sent, %d received", o, r.Answered, r.Errors, r.Sent, r.Received)
					}
					if n := r.Connect.TotalCount(); n != opened {
						t.Errorf("%+v: %d connections opened, the server has seen %d", o, n, opened)
					}
					each := o.NewConnections || name == "closed" || name == "until the end"
					if n := uint64(opened); each && n < r.Answered || !each && n > 4 {
						t.Errorf("%+v: %d connections for %d requests", o, n, r.Answered)
					}
					if n := r.Handshake.TotalCount(); secure && n != opened || !secure && n != 0 {
						t.Errorf("%+v: %d TLS handshakes", o, n)
					}
				}
			}
		})
	}
}

// What the server gets is what the options say.
func TestRequest(t *testing.T) {
	type request struct{ line, host, agent, extra, body string }
	got := make(chan request, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		select {
		case got <- request{r.Method + " " + r.URL.String(), r.Host, r.UserAgent(), r.Header.Get("X-Extra") + r.Header.Get("Content-Type"), string(body)}:
		default:
		}
	}))
	defer s.Close()
	load(t, Options{URL: s.URL + "/a%20b?q=1&r=ü", Requests: 1})
	if r, want := <-got, (request{"GET /a%20b?q=1&r=ü", strings.TrimPrefix(s.URL, "http://"), userAgent, "", ""}); r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
	load(t, Options{
		URL: s.URL, Method: http.MethodPost, Header: []string{"Host: www.example.net", "X-Extra: yes", "Content-Type: text/plain", "User-Agent: me"},
		Body: []byte("hello"), Requests: 1,
	})
	if r, want := <-got, (request{"POST /", "www.example.net", "me", "yestext/plain", "hello"}); r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
}

// Errors are told apart, and none of them is an answer.
func TestKinds(t *testing.T) {
	quiet := log.New(io.Discard, "", 0)
	// read takes the request, so that closing the connection is no reset.
	read := func(c net.Conn) { _, _ = http.ReadRequest(bufio.NewReader(c)) }
	refused := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return "http://" + l.Addr().String() + "/"
	}
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = quiet
	secure.StartTLS()
	t.Cleanup(secure.Close)
	status := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "busy", http.StatusServiceUnavailable)
	}))
	t.Cleanup(status.Close)
	for want, url := range map[Kind]string{
		Refused: refused(),
		Reset: raw(t, func(c net.Conn) {
			read(c)
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}),
		Closed: raw(t, func(c net.Conn) {
			read(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nnot all")
			_ = c.Close()
		}),
		Malformed: raw(t, func(c net.Conn) {
			read(c)
			_, _ = io.WriteString(c, "220 mail.example.net ESMTP\r\n\r\n")
			_ = c.Close()
		}),
		Timeout:         raw(t, func(c net.Conn) { read(c); <-t.Context().Done(); _ = c.Close() }),
		statusKind(503): status.URL,
		Certificate:     secure.URL,
		TLS:             strings.Replace(status.URL, "http:", "https:", 1),
	} {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			timeout := time.Minute // a busy machine takes its time to refuse
			if want == Timeout {
				timeout = 150 * time.Millisecond
			}
			for _, anew := range []bool{false, true} {
				r := load(t, Options{URL: url, Connections: 2, Timeout: timeout, Requests: 3, NewConnections: anew})
				if n := r.Errors[want]; n == 0 || n != r.Failed() || r.Answered != 0 {
					t.Errorf("got %v, %d answers", r.Errors, r.Answered)
				}
			}
		})
	}
}

// Redirects are answers, but seldom those that were to be measured.
func TestRedirected(t *testing.T) {
	s := httptest.NewServer(http.RedirectHandler("/page", http.StatusFound))
	defer s.Close()
	r := load(t, Options{URL: s.URL, Requests: 3})
	if w := r.Warnings(); r.Answered != 3 || len(w) != 1 || !strings.HasPrefix(w[0], "3 answers were redirects") {
		t.Errorf("%d answers, warnings %q", r.Answered, w)
	}
}

// Who asks for kept alive connections is told when the server keeps none.
func TestNotKeptAlive(t *testing.T) {
	for _, keeps := range []bool{true, false} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		s.Config.SetKeepAlivesEnabled(keeps)
		s.Start()
		r := load(t, Options{URL: s.URL, Connections: 2, Requests: 20})
		s.Close()
		said := slices.ContainsFunc(r.Warnings(), func(w string) bool { return strings.Contains(w, "not kept alive") })
		if r.Answered != 20 || said == keeps {
			t.Errorf("keeps %v: %d answers, warnings %q", keeps, r.Answered, r.Warnings())
		}
	}
}

// The nested server closes before its header is whole, or resets inside of it:
// the reader's own error does not hide that.
func TestEndInsideOfHeader(t *testing.T) {
	for want, end := range map[Kind]func(c *net.TCPConn){
		Closed: func(c *net.TCPConn) { _ = c.Close() },
		Reset:  func(c *net.TCPConn) { _ = c.SetLinger(0); time.Sleep(50 * time.Millisecond); _ = c.Close() },
	} {
		url := raw(t, func(c net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Le")
			end(c.(*net.TCPConn))
		})
		r := load(t, Options{URL: url, Requests: 2})
		if n := r.Errors[want]; n != 2 || n != r.Failed() {
			t.Errorf("%s: got %v", want, r.Errors)
		}
	}
}

// Connections take the local addresses in turn.
func TestBind(t *testing.T) {
	var seen sync.Map
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen.Store(netip.MustParseAddrPort(r.RemoteAddr).Addr(), true)
	}))
	defer s.Close()
	r := load(t, Options{URL: s.URL, Connections: 6, Bind: addrs("127.0.0.2", "127.0.0.3"), NewConnections: true, Requests: 12})
	if r.Answered != 12 || r.Failed() != 0 {
		t.Errorf("%d answers, %v", r.Answered, r.Errors)
	}
	n := 0
	seen.Range(func(k, _ any) bool {
		n++
		if a := k.(netip.Addr).String(); a != "127.0.0.2" && a != "127.0.0.3" {
			t.Errorf("asked from %s", a)
		}
		return true
	})
	if n != 2 {
		t.Errorf("asked from %d addresses, want both", n)
	}
}

// Of a name's addresses the first that accepts connections gets all.
func TestNameWithSeveralAddresses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	here := netip.MustParseAddrPort(l.Addr().String())
	tg := &target{addrs: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.9"), here.Port()), here}}
	if got := tg.choose(t.Context(), newDialer(&Options{}).try); got != here {
		t.Errorf("chose %s, want %s", got, here)
	}
	tg.addrs = tg.addrs[:1]
	if got := tg.choose(t.Context(), newDialer(&Options{}).try); got != tg.addrs[0] {
		t.Errorf("one address is not tried: chose %s", got)
	}
}

// In a namespace whose local ports are few, new connections by a client that
// closes first run out of them: that is counted, and said with what helps.
// Connections that the server closes leave them free.
func TestLocalPortsRunOut(t *testing.T) {
	lab := testnet.New(t)
	ns := lab.Unnamed("load")
	ns.Sysctl("net.ipv4.ip_local_port_range", "40000 40019")
	ns.Sysctl("net.ipv4.tcp_tw_reuse", "0")
	l, err := ns.Listen("127.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				// One that stays open: the client has to close.
				_, _ = http.ReadRequest(bufio.NewReader(c))
				_, _ = io.WriteString(c, fine)
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}()
		}
	}()
	r := load(t, Options{URL: "http://127.0.0.1/", NewConnections: true, Connections: 2, Requests: 22, Dialer: ns.Dial})
	if r.Answered != 20 || r.Errors[NoPort] == 0 || r.Failed() != r.Errors[NoPort] {
		t.Errorf("%d answers, %v; want 20 and no more ports", r.Answered, r.Errors)
	}
	if w := strings.Join(r.Warnings(), "\n"); !strings.Contains(w, "no local port was free") || !strings.Contains(w, "--bind") {
		t.Errorf("the warning is %q", w)
	}

	ns.Sysctl("net.ipv4.ip_local_port_range", "41000 41019")
	polite, err := ns.Listen("127.0.0.1:81")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(polite) }()
	defer s.Close()
	r = load(t, Options{URL: "http://127.0.0.1:81/", NewConnections: true, Connections: 2, Requests: 100, Dialer: ns.Dial})
	if r.Answered != 100 || r.Failed() != 0 {
		t.Errorf("%d answers, %d unsent, %v; want more than there are ports", r.Answered, r.Unsent, r.Errors)
	}
}

// A local port is used for every server at a time: connect chooses it, knowing the
// destination. A socket that is bound first would have it for itself, and run out of
// ports with 20 connections to all servers together.
func TestLocalPortsOfEveryServer(t *testing.T) {
	const ports = 20
	lab := testnet.New(t)
	ns := lab.Unnamed("ports")
	ns.Sysctl("net.ipv4.ip_local_port_range", fmt.Sprintf("40000 %d", 40000+ports-1))
	var servers []netip.AddrPort
	for port := uint16(80); port < 83; port++ {
		to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
		l, err := ns.Listen(to.String())
		if err != nil {
			t.Fatal(err)
		}
		// It takes connections until the test ends: closing it would reset them.
		defer l.Close()
		servers = append(servers, to)
	}
	for name, bind := range map[string][]netip.Addr{"any address": nil, "one address": addrs("127.0.0.1")} {
		d := newDialer(&Options{Bind: bind})
		var open []net.Conn
		for _, to := range servers {
			for n := range ports {
				err := ns.Do(func() error {
					conn, err := d.dial(t.Context(), to, n)
					if err == nil {
						open = append(open, conn)
					}
					return err
				})
				if err != nil {
					t.Fatalf("%s, connection %d to %s: %v", name, n+1, to, err)
				}
			}
		}
		for _, conn := range open {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	}
}

func TestKindOf(t *testing.T) {
	for want, err := range map[Kind]error{
		TLS:       fmt.Errorf("read: %w", tls.AlertError(40)),
		Malformed: errors.New("what"),
		Closed:    io.ErrUnexpectedEOF,
	} {
		if got := kindOf(err, asking); got != want {
			t.Errorf("%v: got %s, want %s", err, got, want)
		}
	}
	if got := kindOf(errors.New("what"), connecting); got != ConnectFailed {
		t.Errorf("got %s", got)
	}
	counted := map[Kind]uint64{statusKind(503): 1, statusKind(404): 1, Reset: 1, Refused: 0}
	if got := fmt.Sprint(Kinds(counted)); got != "[connection reset status 404 status 503]" {
		t.Errorf("got %s", got)
	}
}
