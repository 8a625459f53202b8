package controller

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"sluice/internal/base/english"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// What a request may take.
const (
	headerTime  = 10 * time.Second // with the handshake of TLS
	bodyTime    = 15 * time.Second
	answerTime  = 25 * time.Second // with the body; a blob has its own
	idleTime    = 2 * time.Minute
	blobTime    = 10 * time.Minute
	headerBytes = 16 << 10
)

// agents is the server of port 7443.
func (c *Controller) agents() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+wire.PathRoot, c.root)
	mux.HandleFunc("POST "+wire.PathEnrol, c.enrol)
	mux.HandleFunc("POST "+wire.PathRenew, c.renew)
	mux.HandleFunc("GET "+wire.PathAgent, c.ofHost(c.stream))
	mux.HandleFunc("GET "+wire.PathTrust, c.ofHost(func(w http.ResponseWriter, _ *http.Request, _ string) {
		wire.Answer(w, http.StatusOK, trustMessage(*c.trust.Load()))
	}))
	mux.HandleFunc("GET "+wire.PathDesired, c.ofHost(func(w http.ResponseWriter, r *http.Request, host string) {
		d, err := c.desiredOf(r.Context(), host)
		if err != nil {
			c.fail(w, err)
			return
		}
		wire.Answer(w, http.StatusOK, d)
	}))
	mux.HandleFunc("GET "+wire.PathLiving, c.ofHost(c.lacks))
	mux.HandleFunc("GET "+wire.PathBlobs+"{sha256}", c.ofHost(c.blob))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		wire.Fail(w, &wire.Failure{Text: fmt.Sprintf("a controller has no %s %.200s", r.Method, r.URL.Path), Kind: wire.KindNotFound})
	})
	var protocols http.Protocols
	protocols.SetHTTP1(true) // what a stream is made of
	return &http.Server{
		Handler: c.oneOfStrangers(mux), TLSConfig: c.online.ServerTLS(names(c.Controllers), c.Now), Protocols: &protocols,
		ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, WriteTimeout: answerTime, IdleTimeout: idleTime, MaxHeaderBytes: headerBytes,
		ErrorLog: log.New(io.Discard, "", 0), // of whoever knocks
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, proofKey{}, &proven{})
		},
	}
}

// oneOfStrangers ends the connection of who has no certificate after one request. What such
// a one can hold, for no longer than the times above, at the pace of handshakes, leaves
// connections to hosts.
func (c *Controller) oneOfStrangers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, has := trust.PeerIdentity(r.TLS, c.Now()); !has {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// proven keeps of a connection that the store knows its key, so that it is asked once.
type proven struct {
	mutex sync.Mutex
	host  store.Host
}

type proofKey struct{}

// ofHost lets in who has a certificate of a host that is enrolled and not revoked. While
// the database does not answer, the last snapshot says so.
func (c *Controller) ofHost(to func(w http.ResponseWriter, r *http.Request, host string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, has := trust.PeerIdentity(r.TLS, c.Now())
		if !has {
			wire.Fail(w, &wire.Failure{Text: "this requires the certificate of a host that is enrolled", Kind: wire.KindCertificate})
			return
		}
		if err := c.authenticate(r, who); err != nil {
			c.fail(w, err)
			return
		}
		if who.Expired {
			wire.Fail(w, &wire.Failure{Text: fmt.Sprintf("the certificate of %s expired at %s; it may renew itself", who.ID, english.Moment(who.NotAfter)), Kind: wire.KindCertificate})
			return
		}
		to(w, r, who.ID)
	}
}

func (c *Controller) authenticate(r *http.Request, who trust.Identity) error {
	in := c.view.Load().hosts
	h, has := in[who.ID]
	cut := !h.Revoked.IsZero() // unless it has been enrolled again since
	is, _ := r.Context().Value(proofKey{}).(*proven)
	if is == nil {
		is = &proven{}
	}
	is.mutex.Lock()
	defer is.mutex.Unlock()
	if has && !cut && is.host.ID == who.ID && is.host.Enrolled.Equal(h.Enrolled) {
		return nil
	}
	found, err := c.Store.Authenticate(r.Context(), who.ID, who.Key)
	c.answered(err)
	switch {
	case err == nil:
		is.host = found
		return nil
	case store.Answered(err):
		return stranger(who.ID, h, err)
	case cut:
		return revoked(who.ID, h)
	case has:
		return nil // it is in the last snapshot, and whether its key is its own cannot be asked
	}
	return err
}

// stranger says why the store does not know a host by its key.
func stranger(id string, h store.Host, err error) error {
	switch {
	case errors.Is(err, store.ErrRevoked):
		return revoked(id, h)
	case errors.Is(err, store.ErrNotFound):
		return &wire.Failure{Text: fmt.Sprintf("this fleet no longer has a host %s; enrol it again", id), Kind: wire.KindRevoked}
	case errors.Is(err, store.ErrTaken):
		return &wire.Failure{Text: fmt.Sprintf("%s has another key in this fleet; enrol this host under a name of its own", id), Kind: wire.KindTaken}
	}
	return err
}

func revoked(id string, h store.Host) *wire.Failure {
	text := id + " is revoked"
	if !h.Revoked.IsZero() {
		text += " since " + english.Moment(h.Revoked)
	}
	if h.RevokedWhy != "" {
		text += fmt.Sprintf(": %q", h.RevokedWhy)
	}
	text += "; its policy stays in force, and a new token enrols it again once it has left the fleet"
	return &wire.Failure{Text: text, Kind: wire.KindRevoked}
}

// fail answers with why not.
func (c *Controller) fail(w http.ResponseWriter, err error) {
	wire.Fail(w, failure(err))
}

func failure(err error) *wire.Failure {
	var f *wire.Failure
	if errors.As(err, &f) {
		return f
	}
	if !store.Answered(err) {
		return &wire.Failure{Text: "the controller cannot do this now; try again later", Kind: wire.KindUnavailable}
	}
	f = &wire.Failure{Text: err.Error(), Kind: wire.KindBadRequest}
	for is, kind := range map[error]wire.Kind{
		store.ErrNotFound: wire.KindNotFound, store.ErrToken: wire.KindToken, store.ErrPending: wire.KindPending, store.ErrTaken: wire.KindTaken, store.ErrExists: wire.KindTaken,
		store.ErrRevoked: wire.KindRevoked, store.ErrConflict: wire.KindTaken, store.ErrRestored: wire.KindTaken,
	} {
		if errors.Is(err, is) {
			f.Kind = kind
		}
	}
	return f
}

func (c *Controller) root(w http.ResponseWriter, _ *http.Request) {
	wire.Answer(w, http.StatusOK, &wire.Roots{Roots: c.trust.Load().Roots})
}

// body reads a request, or answers why not.
func body[T wire.Checker](w http.ResponseWriter, r *http.Request, into T) bool {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MostRequest))
	if err == nil {
		err = wire.Read(text, into)
	}
	if err != nil {
		wire.Fail(w, &wire.Failure{Text: fmt.Sprintf("the request is wrong: %v", err), Kind: wire.KindBadRequest})
	}
	return err == nil
}

func (c *Controller) enrol(w http.ResponseWriter, r *http.Request) {
	e := &wire.Enrol{}
	if !body(w, r, e) {
		return
	}
	issued, err := c.online.IssueHost([]byte(e.Request), e.Host, c.Now())
	if err != nil {
		wire.Fail(w, &wire.Failure{Text: err.Error(), Kind: wire.KindBadRequest})
		return
	}
	h, err := c.Store.Enrol(r.Context(), store.Enrolment{Secret: sha256.Sum256([]byte(e.Secret)), Host: e.Host, Key: issued.Key, Addresses: e.Addresses})
	if err == nil {
		err = c.issue(r.Context(), e.Host, issued)
	}
	if err != nil {
		c.fail(w, err)
		return
	}
	_ = c.refresh(r.Context()) // so that who asks now sees it; it comes a moment later otherwise
	wire.Answer(w, http.StatusOK, &wire.Enrolled{Fleet: c.online.State().Fleet, Host: h.ID, Labels: h.Labels, Certificate: string(issued.Chain), Controllers: c.Controllers})
}

// A host's key is certified so often at once, and then once in a time: the store and the
// audit keep each certificate.
const (
	mostIssued = 5
	issueEvery = time.Minute
)

func (c *Controller) issue(ctx context.Context, host string, issued trust.Issued) error {
	if !c.issues.allow(host, c.Now()) {
		return &wire.Failure{Text: fmt.Sprintf("%s has had %d certificates in a short time; ask again in %s", host, mostIssued, issueEvery), Kind: wire.KindBusy}
	}
	return c.Store.Issued(ctx, "host:"+host, store.Certificate{Serial: issued.Serial, Host: host, Key: issued.Key, From: c.Now(), Until: issued.NotAfter})
}

func (c *Controller) renew(w http.ResponseWriter, r *http.Request) {
	request := &wire.Renew{}
	if !body(w, r, request) {
		return
	}
	who, has := trust.PeerIdentity(r.TLS, c.Now())
	if !has {
		wire.Fail(w, &wire.Failure{Text: "this requires the certificate that is to be renewed", Kind: wire.KindCertificate})
		return
	}
	if _, err := c.Store.Authenticate(r.Context(), who.ID, who.Key); err != nil {
		c.fail(w, stranger(who.ID, c.view.Load().hosts[who.ID], err))
		return
	}
	issued, err := c.online.IssueHost([]byte(request.Request), who.ID, c.Now())
	if err != nil {
		wire.Fail(w, &wire.Failure{Text: err.Error(), Kind: wire.KindBadRequest})
		return
	}
	if err := c.issue(r.Context(), who.ID, issued); err != nil {
		c.fail(w, err)
		return
	}
	wire.Answer(w, http.StatusOK, &wire.Renewed{Certificate: string(issued.Chain)})
}

// issues is how often hosts were given a certificate.
type issues struct {
	mutex sync.Mutex
	of    map[string]*rate.Limiter
}

func (is *issues) allow(host string, now time.Time) bool {
	is.mutex.Lock()
	defer is.mutex.Unlock()
	if is.of == nil {
		is.of = map[string]*rate.Limiter{}
	}
	l := is.of[host]
	if l == nil {
		l = rate.NewLimiter(rate.Every(issueEvery), mostIssued)
		is.of[host] = l
	}
	return l.AllowN(now, 1)
}

// stream begins the life of a host's stream, in a goroutine of its own: that of the request has
// a stack that a handshake fitted on, and holds the request.
func (c *Controller) stream(w http.ResponseWriter, r *http.Request, host string) {
	conn, err := wire.Accept(w, r)
	if err != nil {
		return
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	go func() {
		defer func() { // as package http does for a request
			if p := recover(); p != nil {
				c.Note(fmt.Errorf("the stream of %s has ended: %v", host, p))
			}
		}()
		_ = c.hub.Serve(conn, host, from.Addr().Unmap())
	}()
}

// names are those of addresses, without ports.
func names(addresses []string) (ns []string) {
	for _, a := range addresses {
		if i := strings.LastIndexByte(a, ':'); i > 0 {
			ns = append(ns, strings.Trim(a[:i], "[]"))
		}
	}
	return ns
}
