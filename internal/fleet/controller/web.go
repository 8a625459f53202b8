package controller

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"sluice/internal/base/english"
	"sluice/internal/base/selector"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/hub"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
	"sluice/web"
)

// Web is where people and programs ask.
type Web struct {
	Listener net.Listener
	// Certificate and Key name files in PEM, which are read again when they change. Without
	// them the fleet's own CA certifies the names by which hosts reach the controller.
	Certificate, Key string
	URL              string    // where browsers reach it, https://HOST:PORT
	Provider         *Provider // nil: people log in by links alone
}

// people is the server of that port.
func (c *Controller) people() (*http.Server, error) {
	config := c.online.WebTLS(names(append([]string{c.Web.Listener.Addr().String()}, c.Controllers...)), c.Now)
	if c.Web.Certificate != "" {
		files := &certificateFiles{certificate: c.Web.Certificate, key: c.Web.Key}
		if _, err := files.get(nil); err != nil {
			return nil, err
		}
		config.GetCertificate = files.get
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler: c.pages(), TLSConfig: config, Protocols: &protocols,
		ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, WriteTimeout: answerTime, IdleTimeout: idleTime, MaxHeaderBytes: headerBytes,
		ErrorLog: log.New(io.Discard, "", 0), // of whoever knocks
	}, nil
}

// servePeople serves that port until the server is ended.
func (c *Controller) servePeople(s *http.Server) error {
	l := &shared{Listener: hub.Paced(c.Web.Listener, mostPeople), from: map[netip.Addr]int{}}
	if err := s.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// pages are all that is served there.
func (c *Controller) pages() http.Handler {
	strangers := newLimits(strangerRate, strangerBurst)
	mux := http.NewServeMux()
	operations := c.identified(strangers, c.operations())
	mux.Handle("/api/", web.Packed(operations))
	mux.Handle("/metrics", operations)
	mux.Handle("GET /session", c.identified(strangers, http.HandlerFunc(c.session)))
	mux.Handle("/", web.Handler())
	mux.Handle("GET /login", paced(strangers, c.loginPage))
	if c.Web.Provider != nil {
		mux.Handle("GET /login/callback", paced(strangers, c.callback))
	}
	mux.Handle("POST /login", paced(strangers, c.login))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		web.Secure(w.Header())
		mux.ServeHTTP(w, r)
	})
}

// paced serves as long as from the address of who asks little was refused. What it serves
// says by its answer whether it refuses.
func paced(strangers *limits, serve func(w http.ResponseWriter, r *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stranger := strangers.get(neighbours(r))
		if stranger.Tokens() < 1 {
			busy(w, "too many requests from this address were refused; try again later")
			return
		}
		if serve(w, r) != nil {
			stranger.Allow()
		}
	})
}

// identified lets in who has a token that is good, at a pace.
func (c *Controller) identified(strangers *limits, next http.Handler) http.Handler {
	callers := newLimits(callerRate, callerBurst)
	return paced(strangers, func(w http.ResponseWriter, r *http.Request) error {
		who, err := c.identify(r)
		if err != nil {
			f := failure(err)
			if f.Kind == wire.KindUnknownCaller {
				w.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
			} else {
				err = nil // it is not a stranger
			}
			wire.Fail(w, f)
			return err
		}
		if !callers.get(who.principal()).Allow() {
			busy(w, fmt.Sprintf("%s asks more than %d times a second", who.Who, callerRate))
			return nil
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, who)))
		return nil
	})
}

// identify is who has sent a request. What it takes is the same for all tokens that look
// like one.
func (c *Controller) identify(r *http.Request) (caller, error) {
	text, has := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if cookie, err := r.Cookie(sessionCookie); !has && err == nil {
		if err := sameOrigin.Check(r); err != nil {
			return caller{}, unpermitted("another page asks this in the name of who is logged in")
		}
		if !web.Own(r, cookie.Value) {
			return caller{}, unpermitted("the request does not show that this page sends it: reload the page")
		}
		text, has = cookie.Value, true
	}
	hash, err := api.SecretHash(text)
	if !has || err != nil {
		return caller{}, unknownCaller("a token is required: Authorization: Bearer TOKEN")
	}
	who, err := c.identifyBy(r.Context(), hash)
	if err == nil {
		c.lately.asks(hash, who, c.Now())
		return who, nil
	}
	if failure(err).Kind != wire.KindUnavailable {
		c.lately.forget(hash)
		return caller{}, err
	}
	// Who ends their request while it is looked up brings the database nowhere.
	if who, is := c.lately.known(hash, c.Now()); is && c.away() != "" && r.Method == http.MethodGet {
		return who, nil // what this reads of the database fails by itself
	}
	return caller{}, err
}

func (c *Controller) identifyBy(ctx context.Context, hash [sha256.Size]byte) (caller, error) {
	a, err := c.Store.AccessBy(ctx, hash)
	c.answered(err)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return caller{}, unknownCaller("the token is not known")
	case err != nil:
		return caller{}, err
	case a.Kind == store.AccessLink:
		return caller{}, unknownCaller("this is a link to log in, and no token")
	}
	if err := c.over(a); err != nil {
		return caller{}, err
	}
	_ = c.Store.UsedAccess(ctx, a) // a database that is full or locked answers anyway
	return c.callerOf(ctx, a)
}

// over says why an access is good no more.
func (c *Controller) over(a store.Access) error {
	switch {
	case !a.Withdrawn.IsZero():
		return unknownCaller("the token was withdrawn")
	case !a.Expires.After(c.Now()):
		return unknownCaller("the token expired at " + english.Moment(a.Expires))
	}
	return nil
}

// callerOf is who has an access, with what they may now.
func (c *Controller) callerOf(ctx context.Context, a store.Access) (who caller, err error) {
	who = caller{Who: a.Who, Role: api.Role(a.Role), session: a.ID, program: a.Kind == store.AccessToken, makers: a.Makers, expires: a.Expires}
	if a.Role == "" {
		who.grants, err = c.granted(ctx, a.Who, a.Groups)
	} else if a.Hosts != "" {
		who.Hosts, err = selector.Parse(a.Hosts)
	}
	return who, err
}

func unknownCaller(text string) error {
	return &wire.Failure{Text: text, Kind: wire.KindUnknownCaller}
}

// certificateFiles is a certificate in files, which somebody renews.
type certificateFiles struct {
	certificate, key string

	mutex   sync.Mutex
	current *tls.Certificate
	looked  time.Time
	written time.Time // of the certificate's file, when it was read
}

// lookEvery is how often the files are looked at.
const lookEvery = 10 * time.Second

// get reads the files where they are others than before. While they cannot be read, it stays
// with what they were.
func (f *certificateFiles) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.current != nil && time.Since(f.looked) < lookEvery {
		return f.current, nil
	}
	f.looked = time.Now()
	is, err := os.Stat(f.certificate)
	if err == nil && f.current != nil && is.ModTime().Equal(f.written) {
		return f.current, nil
	}
	if err == nil {
		var read tls.Certificate
		if read, err = tls.LoadX509KeyPair(f.certificate, f.key); err == nil {
			f.current, f.written = &read, is.ModTime()
		}
	}
	if f.current == nil {
		return nil, fmt.Errorf("the certificate for people: %w", err)
	}
	return f.current, nil
}
