package fleet

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/engine/apply"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// door is a controller over TLS, which gives what a stage has.
type door struct {
	*stage
	server *httptest.Server
	mu     sync.Mutex
	token  trust.Token
	asked  []string          // paths
	keys   map[string]string // by id, the first one that enrolled
	wait   int               // how often somebody has yet to approve
}

func newDoor(t *testing.T) *door {
	t.Helper()
	d := &door{stage: newStage(t), keys: map[string]string{}}
	d.server = httptest.NewUnstartedServer(http.HandlerFunc(d.serve))
	// StartTLS would put a certificate of its own before this one.
	d.server.Listener = tls.NewListener(d.server.Listener, d.online.ServerTLS([]string{"127.0.0.1"}, time.Now))
	d.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	d.server.Start()
	t.Cleanup(d.server.Close)
	d.token = must(trust.NewToken(d.repository.Root(), []string{d.address()}, map[string]string{"role": "web"}))
	return d
}

func (d *door) address() string { return d.server.Listener.Addr().String() }

func (d *door) serve(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.asked = append(d.asked, r.Method+" "+r.URL.Path)
	d.mu.Unlock()
	who, known := trust.PeerIdentity(r.TLS, time.Now())
	switch {
	case r.URL.Path == wire.PathRoot:
		wire.Answer(w, http.StatusOK, &wire.Roots{Roots: [][]byte{d.repository.Root()}})
	case r.URL.Path == wire.PathEnrol:
		d.enrol(w, r)
	case !known:
		wire.Fail(w, &wire.Failure{Text: "who are you", Kind: wire.KindCertificate})
	case r.URL.Path == wire.PathRenew:
		in := &wire.Renew{}
		check(d.t, wire.Read(must(io.ReadAll(r.Body)), in))
		wire.Answer(w, http.StatusOK, &wire.Renewed{Certificate: string(must(d.online.IssueHost([]byte(in.Request), who.ID, time.Now())).Chain)})
	case r.URL.Path == wire.PathTrust:
		wire.Answer(w, http.StatusOK, must(d.Metadata(r.Context())))
	case r.URL.Path == wire.PathDesired:
		wire.Answer(w, http.StatusOK, must(d.Desired(r.Context())))
	case strings.HasPrefix(r.URL.Path, wire.PathBlobs):
		text, err := d.Blob(r.Context(), strings.TrimPrefix(r.URL.Path, wire.PathBlobs), 0, nil)
		if err != nil {
			wire.Fail(w, &wire.Failure{Text: err.Error(), Kind: wire.KindNotFound})
			return
		}
		_, _ = w.Write(text)
	case r.URL.Path == wire.PathAgent:
		d.hold(w, r)
	}
}

func (d *door) enrol(w http.ResponseWriter, r *http.Request) {
	in := &wire.Enrol{}
	check(d.t, wire.Read(must(io.ReadAll(r.Body)), in))
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wait > 0 {
		d.wait--
		wire.Fail(w, &wire.Failure{Text: "an operator has to approve web-1", Kind: wire.KindPending})
		return
	}
	key := must(trust.RequestKey([]byte(in.Request)))
	if first, again := d.keys[in.Host]; in.Secret != d.token.Secret || again && first != key {
		wire.Fail(w, &wire.Failure{Text: "the token was used already", Kind: wire.KindToken})
		return
	}
	d.keys[in.Host] = key
	wire.Answer(w, http.StatusOK, &wire.Enrolled{
		Fleet: "example.net", Host: in.Host, Certificate: string(must(d.online.IssueHost([]byte(in.Request), in.Host, time.Now())).Chain),
		Controllers: []string{"controller-2.example.net:7443"},
	})
}

func (d *door) hold(w http.ResponseWriter, r *http.Request) {
	c, err := wire.Accept(w, r)
	if err != nil {
		return
	}
	defer c.Cut()
	to := must(d.Dial(r.Context())).(*stream)
	defer to.Cut()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		for {
			m, err := to.Receive(ctx)
			if err != nil || c.Send(ctx, m) != nil {
				return
			}
		}
	}()
	for {
		m, err := c.Receive(ctx)
		if err != nil {
			return
		}
		check(d.t, to.Send(ctx, m))
	}
}

func (d *door) enrolment(t *testing.T) Enrolment {
	t.Helper()
	return Enrolment{
		Host: &apply.Host{Dir: t.TempDir()}, ID: "web-1", Controller: d.address(), Token: d.token,
		Addresses: []netip.Addr{netip.MustParseAddr("203.0.113.5")}, Dialer: new(net.Dialer).DialContext, Waiting: func(text, key string) { t.Log(text, key) },
	}
}

// A host enrols, and follows its fleet over TLS.
func TestEnrol(t *testing.T) {
	d := newDoor(t)
	e := d.enrolment(t)
	m, err := Enrol(t.Context(), e)
	check(t, err)
	if m.Fleet != "example.net" || m.Host != "web-1" || m.Labels["role"] != "web" || len(m.Controllers) != 2 {
		t.Fatalf("%+v", m)
	}
	dir := filepath.Join(e.Host.Dir, apply.FleetDir)
	for _, name := range []string{"host.json", keyName} {
		if is := must(os.Stat(filepath.Join(dir, name))); is.Mode().Perm() != 0o600 {
			t.Fatalf("%s: %s", name, is.Mode())
		}
	}
	if left := must(filepath.Glob(filepath.Join(dir, "request-*"))); len(left) > 0 {
		t.Fatal(left)
	}
	var member *MemberError
	if _, err := Enrol(t.Context(), e); !errors.As(err, &member) {
		t.Fatal(err)
	}

	believed := must(trust.OpenHost(dir))
	n := &Network{Dir: dir, Host: "web-1", Trust: believed, Addresses: []string{d.address()}, Dialer: e.Dialer}
	check(t, n.Open())
	check(t, n.Reach(t.Context()))
	before := must(os.ReadFile(filepath.Join(dir, keyName)))
	check(t, n.Renew(t.Context())) // half its time has not gone by
	if string(must(os.ReadFile(filepath.Join(dir, keyName)))) != string(before) {
		t.Fatal("renewed")
	}
	n.certificate.Leaf.NotBefore = n.certificate.Leaf.NotBefore.Add(-100 * 24 * time.Hour)
	n.certificate.Leaf.NotAfter = time.Now().Add(time.Hour)
	check(t, n.Renew(t.Context()))
	if string(must(os.ReadFile(filepath.Join(dir, keyName)))) == string(before) {
		t.Fatal("not renewed")
	}

	d.host = believed
	ctx, end := context.WithCancel(t.Context())
	s := &Member{
		Dir: dir, Host: "web-1", Labels: m.Labels, Trust: believed, Controllers: n, Engine: d.kernel,
		Level: 1, Version: "1", Instance: "1", Times: Usual, Note: func(err error) { t.Log(err) },
	}
	ended := make(chan error)
	d.set(func() { d.kernel.probes = []string{"controller"} })
	d.desire(wire.Desired{Bundle: 1, Rollout: 1})
	go func() { ended <- s.Run(ctx) }()
	for s.Report().State != wire.StateConfirmed {
		time.Sleep(10 * time.Millisecond)
		if t.Context().Err() != nil {
			t.Fatalf("%+v", s.Report())
		}
	}
	end()
	check(t, <-ended)
	in := must(e.Host.InFleet())
	if in.State != "confirmed" || in.Running != 1 || in.Bundle != 1 || in.Reached.IsZero() || !in.Lost.IsZero() {
		t.Fatalf("%+v", in)
	}
	check(t, err)
	if _, err := Leave(e.Host); err != nil {
		t.Fatal(err)
	}
	if left := must(os.ReadDir(dir)); len(left) != 1 || left[0].Name() != "bundles" {
		t.Fatal(left)
	}
	if _, err := Leave(e.Host); !errors.Is(err, apply.ErrUnmanaged) {
		t.Fatal(err)
	}
}

// ending tells that a connection was closed.
type ending struct {
	net.Conn
	ended chan struct{}
}

func (c *ending) Close() error {
	c.ended <- struct{}{}
	return c.Conn.Close()
}

// A host leaves its controller no connection beside the stream, once it has its answers.
func TestIdle(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	e := d.enrolment(t)
	_, err := Enrol(t.Context(), e)
	check(t, err)
	ended := make(chan struct{}, 1)
	dir := filepath.Join(e.Host.Dir, apply.FleetDir)
	n := &Network{Dir: dir, Host: "web-1", Trust: must(trust.OpenHost(dir)), Addresses: []string{d.address()}, Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := e.Dialer(ctx, network, address)
		return &ending{c, ended}, err
	}}
	check(t, n.Open())
	for range 2 { // by one connection
		must(n.Metadata(t.Context()))
	}
	select {
	case <-ended:
	case <-time.After(50 * time.Second): // the door has no end for one
		t.Fatal("the connection stays")
	}
}

// Nothing is sent to whoever is not the fleet's controller.
func TestEnrolAtAnother(t *testing.T) {
	d, other := newDoor(t), newDoor(t)
	e := d.enrolment(t)
	e.Controller = other.address()
	if _, err := Enrol(t.Context(), e); !errors.Is(err, trust.ErrForeignFleet) {
		t.Fatal(err)
	}
	if len(other.asked) != 1 || other.asked[0] != "GET "+wire.PathRoot {
		t.Fatal(other.asked)
	}
	if m := must(e.Host.Membership()); m != nil {
		t.Fatal(m)
	}
	// Nor one that shows the right root.json, and has no certificate by it.
	other.repository = d.repository
	if _, err := Enrol(t.Context(), e); err == nil {
		t.Fatal("enrolled")
	}
	if len(other.asked) != 2 {
		t.Fatal(other.asked)
	}
	// What was left of it does not hinder the right one.
	e.Controller = d.address()
	if _, err := Enrol(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

// A token is good for one key, which is the same where the answer was lost.
func TestEnrolAgain(t *testing.T) {
	d := newDoor(t)
	e := d.enrolment(t)
	dir := filepath.Join(e.Host.Dir, apply.FleetDir)
	check(t, os.MkdirAll(dir, 0o700))
	_, request, err := e.request(dir)
	check(t, err)
	block, _ := pem.Decode(request)
	if block == nil {
		t.Fatalf("%s", request)
	}
	d.keys["web-1"] = must(trust.RequestKey(request)) // the answer to it did not come through
	if _, err := Enrol(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	second := d.enrolment(t)
	var f *wire.Failure
	if _, err := Enrol(t.Context(), second); !errors.As(err, &f) || f.Kind != wire.KindToken {
		t.Fatal(err)
	}
}

// TestAnyController: what one controller lacks or cannot answer now, the next one is asked, and
// what one refuses no other.
func TestAnyController(t *testing.T) {
	n := &Network{Addresses: []string{"one", "two"}}
	for kind, goesOn := range map[wire.Kind]bool{
		wire.KindNotFound: true, wire.KindBusy: true, wire.KindUnavailable: true, wire.KindRevoked: false, wire.KindBadRequest: false,
	} {
		failed := 0
		for range 40 { // in no order
			err := n.any(t.Context(), func(_ context.Context, base string) error {
				if base == "https://one" {
					return &wire.Failure{Text: "no", Kind: kind}
				}
				return nil
			})
			if err != nil {
				failed++
			}
		}
		if (failed == 0) != goesOn {
			t.Errorf("%s: %d of 40 failed", kind, failed)
		}
	}
}

// TestSilentController: one that takes no packets leaves time for another one.
func TestSilentController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Network{Addresses: []string{"silent", "silent", "two"}}
		for range 20 { // in no order
			ctx, stop := context.WithTimeout(t.Context(), Usual.Dead)
			err := n.any(ctx, func(ctx context.Context, base string) error {
				if base == "https://silent" {
					<-ctx.Done()
				}
				return ctx.Err()
			})
			stop()
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}
