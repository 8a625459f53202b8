package controller

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/notices"
	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// fleet is an operator and a controller that runs, on loopback.
type fleet struct {
	testing.TB
	policy     trust.Signer
	repository *trust.Repository
	dir        string // of the controller
	database   string
	address    string
	web        string // where people are served
	provider   *Provider
	keepWeb    bool // at the address of the controller before
	controller *Controller
	client     *api.Client
	stop       func() error
	files      map[string][]byte
	text       string // of fleet.yaml
	addresses  map[string][]netip.Addr
	notes      atomic.Value // the last one
	notices    *notices.Config
	ahead      *atomic.Int64 // how far the controller's clock is, in nanoseconds
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newKey(t testing.TB) trust.PrivateKey {
	key, err := trust.NewKey()
	ok(t, err)
	return key
}

// newFleet founds one and runs its controller.
func newFleet(t testing.TB, name string) *fleet {
	t.Helper()
	f := &fleet{TB: t, policy: newKey(t), dir: t.TempDir(), files: map[string][]byte{}, text: "version: 1\nfleet: " + name + "\nparts: [parts/*.yaml]\n"}
	f.database = "sqlite:" + filepath.Join(t.TempDir(), "fleet.db")
	root, now := newKey(t), time.Now()
	ca, caKey, err := trust.NewCA(name, now)
	ok(t, err)
	founding := trust.Founding{
		Fleet: name, CA: ca,
		Root:   trust.RoleKeys{Keys: []ed25519.PublicKey{root.Public()}, Threshold: 1},
		Policy: trust.RoleKeys{Keys: []ed25519.PublicKey{f.policy.Public()}, Threshold: 1},
	}
	online := map[string]trust.PrivateKey{"snapshot": newKey(t), "timestamp": newKey(t), "live": newKey(t)}
	founding.Snapshot = []ed25519.PublicKey{online["snapshot"].Public()}
	founding.Timestamp = []ed25519.PublicKey{online["timestamp"].Public()}
	founding.Live = []ed25519.PublicKey{online["live"].Public()}
	f.repository, err = trust.Found(t.TempDir(), founding, now, root)
	ok(t, err)
	ok(t, trust.NewOnline(f.dir, f.repository.Root()))
	for role, key := range online {
		ok(t, trust.AddOnlineKey(f.dir, role, key))
	}
	certificate, key, err := trust.NewIntermediate(name, ca, caKey, now)
	ok(t, err)
	ok(t, trust.AddOnlineCA(f.dir, certificate, key))
	f.client = api.NewClient(f.dir)
	f.run()
	t.Cleanup(func() {
		if f.stop != nil {
			ok(t, f.stop())
		}
	})
	return f
}

// run begins a controller, at the address of the one before.
func (f *fleet) run() {
	f.Helper()
	if f.address == "" {
		f.address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", f.address)
	ok(f, err)
	f.address = l.Addr().String()
	s, err := store.Open(f.Context(), f.database)
	ok(f, err)
	if !f.keepWeb {
		f.web = "127.0.0.1:0"
	}
	web, err := net.Listen("tcp", f.web)
	ok(f, err)
	f.web = web.Addr().String()
	f.controller, err = New(f.Context(), Options{Dir: f.dir, Store: s, Version: "1", Controllers: []string{f.address}, Web: &Web{Listener: web, URL: "https://" + f.web, Provider: f.provider}, Note: f.note, Notices: f.notices, Now: f.now})
	ok(f, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.Context()))
	ended := make(chan error, 1)
	go func() { ended <- f.controller.Run(ctx, l) }()
	f.stop = func() error {
		cancel()
		f.stop = nil
		return errors.Join(<-ended, s.Close())
	}
	f.until("the socket", func() bool {
		_, err := f.client.Status(f.Context())
		return err == nil
	})
}

func (f *fleet) now() time.Time {
	if f.ahead == nil {
		return time.Now()
	}
	return time.Now().Add(time.Duration(f.ahead.Load()))
}

func (f *fleet) note(err error) {
	f.notes.Store(err.Error())
	f.Log(err)
}

// until waits for something to become true.
func (f *fleet) until(what string, is func() bool) {
	f.Helper()
	for end := time.Now().Add(3 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			all, err := f.client.Rollouts(f.Context(), 100)
			f.Fatalf("%s never comes: %+v\n%+v %v", what, f.states(), all, err)
		}
	}
}

func (f *fleet) file(path, selector, text string) trust.File {
	f.files[trust.HashOf([]byte(text))] = []byte(text)
	return trust.File{Path: path, Selector: selector, SHA256: trust.HashOf([]byte(text)), Size: int64(len(text))}
}

// token lets hosts enrol.
func (f *fleet) token(labels map[string]string, uses int) trust.Token {
	f.Helper()
	t, err := trust.NewToken(f.repository.Root(), []string{f.address}, labels)
	ok(f, err)
	ok(f, f.client.CreateToken(f.Context(), api.NewToken{Id: t.Secret[:8], Secret: trust.SecretHash(t.Secret), Labels: labels, Uses: uses, Expires: time.Now().Add(time.Hour)}))
	return t
}

// publish signs a bundle and gives it to the controller.
func (f *fleet) publish(text string) (*rollout.Rollout, error) {
	f.Helper()
	signed, err := f.repository.Sign(trust.Signing{Level: 1, File: f.file("fleet.yaml", "", f.text), Parts: []trust.File{
		f.file("parts/10-base.yaml", "", "version: 1\n"+text), f.file("parts/50-db.yaml", "role=db", "version: 1\nhosts: role=db\n# "+strings.ReplaceAll(text, "\n", "\n# ")),
	}}, time.Now(), f.policy)
	ok(f, err)
	return f.give(signed.Bundle.Number)
}

// give gives the controller what is signed, and begins a roll-out.
func (f *fleet) give(number int64) (*rollout.Rollout, error) {
	f.Helper()
	return f.client.Publish(f.Context(), f.put(number))
}

// put gives the controller the files of a bundle, and is how it is published.
func (f *fleet) put(number int64) api.Publish {
	f.Helper()
	manifests, err := f.repository.Manifests()
	ok(f, err)
	for hash, manifest := range manifests {
		f.files[hash] = manifest
	}
	var hashes []string
	for hash := range f.files {
		hashes = append(hashes, hash)
	}
	missing, err := f.client.Missing(f.Context(), hashes)
	ok(f, err)
	for _, hash := range missing {
		ok(f, f.client.PutBlob(f.Context(), hash, bytes.NewReader(f.files[hash])))
	}
	m, err := f.repository.Metadata()
	ok(f, err)
	return api.Publish{Roots: m.Roots, Targets: m.Targets, Bundle: number}
}

// agent is a host as the controller sees one: real trust, certificates and messages, and
// no firewall.
type agent struct {
	*fleet
	host     string
	labels   map[string]string
	trust    *trust.Host
	key      []byte
	requests []byte
	enrolled *wire.Enrolled

	certificate *tls.Certificate
	client      *wire.Client
	instance    string
}

// join enrols a host by a token.
func (f *fleet) join(host string, token trust.Token) (*agent, error) {
	f.Helper()
	open := &wire.Client{Base: "https://" + token.Controllers[0], HTTP: &http.Client{Transport: &http.Transport{TLSClientConfig: trust.RootTLS()}}}
	roots, err := open.Roots(f.Context())
	if err != nil {
		return nil, err
	}
	root, err := trust.PinnedRoot(roots, token.Root)
	if err != nil {
		return nil, err
	}
	a := &agent{fleet: f, host: host, labels: token.Labels, instance: host}
	a.trust, err = trust.NewHost(f.TempDir(), root)
	ok(f, err)
	a.key, a.requests, err = trust.NewRequest(host)
	ok(f, err)
	a.client = a.over(nil)
	a.enrolled, err = a.client.Enrol(f.Context(), &wire.Enrol{Secret: token.Secret, Host: host, Request: a.request(), Addresses: f.addresses[host]})
	if err != nil {
		return nil, err
	}
	a.certified(a.enrolled.Certificate)
	return a, nil
}

func (a *agent) over(certificate *tls.Certificate) *wire.Client {
	t := &http.Transport{TLSClientConfig: a.trust.ClientTLS(certificate, time.Now)}
	a.Cleanup(t.CloseIdleConnections)
	return &wire.Client{Base: "https://" + a.address, HTTP: &http.Client{Transport: t}}
}

func (a *agent) certified(chain string) {
	a.Helper()
	certificate, err := tls.X509KeyPair([]byte(chain), a.key)
	ok(a, err)
	a.certificate = &certificate
	a.client = a.over(&certificate)
}

func (a *agent) request() string { return string(a.requests) }

// stream connects and says hello.
func (a *agent) stream(report *wire.Report) *wire.Conn {
	a.Helper()
	conn, err := wire.Dial(a.Context(), a.client.HTTP, a.client.Base)
	ok(a, err)
	a.Cleanup(conn.Cut)
	ok(a, conn.Send(a.Context(), &wire.Message{Hello: &wire.Hello{Version: "1.2", LanguageLevel: 1, Instance: a.instance, Labels: a.labels, Report: report}}))
	return conn
}

// obey does what desired says until the stream ends, as a host whose kernel does all that it
// is told.
func (a *agent) obey(conn *wire.Conn) {
	running := int64(0)
	for {
		m, err := conn.Receive(context.Background())
		switch {
		case err != nil:
			return
		case m.Trust != nil:
			if err := a.trust.Update(trust.Metadata{Roots: m.Trust.Roots, Timestamp: m.Trust.Timestamp, Snapshot: m.Trust.Snapshot, Targets: m.Trust.Targets}, time.Now()); err != nil {
				a.Log(a.host, err)
			}
		case m.Question != nil:
			body := fmt.Appendf(nil, "%s %s?%s of %s: %s", m.Question.Method, m.Question.Path, m.Question.Query, a.host, m.Question.Body)
			if conn.Send(context.Background(), &wire.Message{Answer: &wire.Piece{Id: m.Question.Id, Status: http.StatusAccepted, Type: m.Question.Accept, Body: body, Last: true}}) != nil {
				return
			}
		case m.Desired != nil && m.Desired.Bundle != 0:
			report := wire.Report{Order: m.Desired.Order, Rollout: m.Desired.Rollout, Bundle: m.Desired.Bundle, Running: running}
			if err := a.take(m.Desired); err != nil {
				report.State, report.Error = wire.StateRefused, err.Error()
			} else {
				running = m.Desired.Bundle
				report.State, report.Running, report.Mark, report.Proved = wire.StateConfirmed, running, fmt.Sprint("m", running), time.Now()
			}
			if err := conn.Send(context.Background(), &wire.Message{Report: &report}); err != nil {
				return
			}
		}
	}
}

// take fetches and verifies a bundle.
func (a *agent) take(d *wire.Desired) error {
	if err := a.trust.Accept(d.Order.Incarnation, d.Order.Revision); err != nil {
		return err
	}
	b, err := a.trust.Bundle(d.Bundle, 1, time.Now())
	if err != nil {
		return err
	}
	text, err := a.client.Blob(context.Background(), b.SHA256, b.Size, nil)
	if err != nil {
		return err
	}
	m, err := b.Manifest(text)
	if err != nil {
		return err
	}
	files, err := m.Select(a.host, a.labels)
	if err != nil {
		return err
	}
	for _, file := range files {
		content, err := a.client.Blob(context.Background(), file.SHA256, file.Size, nil)
		if err == nil {
			err = file.Check(content)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// states are those of all hosts, with why.
func (f *fleet) states() map[string]api.Host {
	f.Helper()
	hosts, err := f.client.Hosts(f.Context(), "")
	ok(f, err)
	all := map[string]api.Host{}
	for _, h := range hosts.Hosts {
		all[h.Host] = h
	}
	return all
}
