// Package local serves the page of web for one host, as the caller, who may do on it what its
// agent lets them: nothing is computed here, and all that the page asks goes to the agent's
// socket. Only who was given the address that it prints may use it. Callers: internal/fleet/cli.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/agent/client"
	"sluice/web"
)

// Options are what is served.
type Options struct {
	Socket    string // of the agent
	Namespace string // "-" is the agent's own
	Version   string // of the program
}

// Server serves the page. It answers only to the address it was made for.
type Server struct {
	options  Options
	host     string // the one Host of requests
	sessions sessions
	agent    *http.Client
}

// New makes a server of the page that is reached at a listener of the loopback.
func New(l net.Listener, o Options) *Server {
	return &Server{
		options: o, host: l.Addr().String(),
		sessions: sessions{cookie: fmt.Sprintf("sluice-%d", l.Addr().(*net.TCPAddr).Port), until: map[string]time.Time{}},
		agent: &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return client.Dial(ctx, o.Socket) },
		}},
	}
}

// Check says why the agent would not show the page anything.
func (s *Server) Check(ctx context.Context) error {
	about, err := s.about(ctx)
	switch {
	case err != nil:
		return errors.New(s.unreachable(err) + "\nhint: systemctl start sluice-agent, as root, starts it; --socket names another one")
	case about.You.May == api.YouMayNothing:
		return fmt.Errorf("the agent does not let %s read anything\nhint: root, members of group sluice and those named in /etc/sluice/agent.yaml may", about.You.User)
	case !slices.Contains(about.Namespaces, s.options.Namespace):
		return fmt.Errorf("the agent does not serve the network namespace %s\nhint: it serves %s", s.options.Namespace, strings.Join(about.Namespaces, ", "))
	}
	return nil
}

// Address is where the page is, with a token that opens it once; the one before opens it no
// more.
func (s *Server) Address() string {
	return "http://" + s.host + "/start?token=" + s.sessions.invite()
}

// Times of a connection. An answer may take as long as the agent's.
const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	headerSize = 32 << 10
)

// Serve serves until the context ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: headerSize,
		BaseContext: func(net.Listener) context.Context { return ctx }, ErrorLog: log.New(io.Discard, "", 0),
	}
	defer context.AfterFunc(ctx, func() { _ = h.Close() })()
	if err := h.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}

// Handler is all that is served: at /start the token becomes a session, without which there
// is nothing else.
func (s *Server) Handler() http.Handler {
	inside := http.NewServeMux()
	inside.Handle("/", web.Handler())
	inside.HandleFunc("GET /session", s.session)
	inside.HandleFunc("POST /local/save", s.save)
	inside.HandleFunc("/agent/", s.pass)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		web.Secure(w.Header())
		// Another name that leads here, and another page that sends something here, are
		// somebody else's doing.
		if r.Host != s.host {
			fail(w, http.StatusMisdirectedRequest, "this page is at http://"+s.host+" alone")
			return
		}
		if from := r.Header.Get("Origin"); from != "" && from != "http://"+s.host {
			fail(w, http.StatusForbidden, "another page asks this")
			return
		}
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
			fail(w, http.StatusForbidden, "another page asks this")
			return
		}
		if r.URL.Path == "/start" {
			s.start(w, r)
			return
		}
		secret, is := s.sessions.of(r)
		switch {
		case !is:
			fail(w, http.StatusUnauthorized, "open the address that sluice-controller local has printed; it is good once, and Enter prints another one")
		case !web.Own(r, secret):
			fail(w, http.StatusForbidden, "the request does not show that this page sends it: reload the page")
		default:
			inside.ServeHTTP(w, r)
		}
	})
}

// start makes a session of the token.
func (s *Server) start(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		fail(w, http.StatusMethodNotAllowed, "a browser opens this address")
		return
	}
	// Nobody guesses it; a limit on who tries would be one that others of the machine use up.
	c := s.sessions.begin(r.URL.Query().Get("token"))
	if c == nil {
		fail(w, http.StatusUnauthorized, "this address was used, or is none that sluice-controller local has printed; Enter there prints another one")
		return
	}
	http.SetCookie(w, c)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// shown is what the page knows of who looks at it.
type shown struct {
	Mode      string `json:"mode"`
	CSRF      string `json:"csrf"`
	Name      string `json:"name"`
	Who       string `json:"who"`
	May       string `json:"may"`
	Namespace string `json:"namespace"`
	Saves     bool   `json:"saves"`
	Version   string `json:"version"`
}

func (s *Server) session(w http.ResponseWriter, r *http.Request) {
	secret, _ := s.sessions.of(r)
	about, err := s.about(r.Context())
	if err != nil {
		fail(w, http.StatusBadGateway, s.unreachable(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(shown{
		Mode: "host", CSRF: web.CSRF(secret), Name: about.Host, Who: about.You.User, May: string(about.You.May),
		Namespace: s.options.Namespace, Saves: s.options.Socket == api.Socket, Version: s.options.Version,
	})
}

// about asks the agent who it is.
func (s *Server) about(ctx context.Context) (*api.About, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://sluice/v1", http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := s.agent.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	out := &api.About{}
	if answer.StatusCode != http.StatusOK {
		f := &api.Failure{}
		if err := json.NewDecoder(answer.Body).Decode(f); err != nil {
			return nil, err
		}
		return nil, f
	}
	return out, json.NewDecoder(answer.Body).Decode(out)
}

// unreachable says that the agent does not answer, and what helps.
func (s *Server) unreachable(err error) string {
	return fmt.Sprintf("the agent at %s does not answer: %v", s.options.Socket, err)
}

func fail(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": text})
}
