package trust

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// certificate enrols a host and returns its certificate.
func (f *fleet) certificate(id string, now time.Time) *tls.Certificate {
	f.t.Helper()
	key, request, err := NewRequest(id)
	ok(f.t, err)
	issued, err := f.online.IssueHost(request, id, now)
	ok(f.t, err)
	made, err := tls.X509KeyPair(issued.Chain, key)
	ok(f.t, err)
	if named, err := RequestKey(request); err != nil || named != issued.Key {
		f.t.Errorf("key %s, %v instead of %s", named, err, issued.Key)
	}
	return &made
}

// meet is a handshake of both sides and one byte each way: whom the controller saw, and the errors of
// the host and of the controller.
func meet(t *testing.T, client, server *tls.Config, now time.Time) (seen Identity, host, controller error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	defer listener.Close()
	result := make(chan error, 1)
	go func() {
		plain, err := listener.Accept()
		if err != nil {
			result <- err
			return
		}
		conn := tls.Server(plain, server)
		defer conn.Close()
		if _, err = conn.Read(make([]byte, 1)); err == nil {
			state := conn.ConnectionState()
			seen, _ = PeerIdentity(&state, now)
			_, err = conn.Write([]byte{1})
		}
		result <- err
	}()
	plain, err := net.Dial("tcp", listener.Addr().String())
	ok(t, err)
	conn := tls.Client(plain, client)
	if _, host = conn.Write([]byte{1}); host == nil {
		_, host = conn.Read(make([]byte, 1))
	}
	plain.Close()
	controller = <-result
	return seen, host, controller
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	f, other := newFleet(t, "example.net", 1), newFleet(t, "example.org", 1)
	h := f.host()
	at := func(now time.Time) func() time.Time { return func() time.Time { return now } }
	web := f.certificate("web-1", start)
	server := func(now time.Time) *tls.Config {
		return f.online.ServerTLS([]string{"controller.example.net", "203.0.113.1"}, at(now))
	}

	seen, host, controller := meet(t, h.ClientTLS(web, at(start)), server(start), start)
	ok(t, errors.Join(host, controller))
	if seen.ID != "web-1" || seen.Expired || seen.Key == "" || seen.Serial == "" {
		t.Errorf("the controller saw %+v", seen)
	}
	// Without a certificate: who enrols.
	seen, host, controller = meet(t, h.ClientTLS(nil, at(start)), server(start), start)
	ok(t, errors.Join(host, controller))
	if seen.ID != "" {
		t.Errorf("the controller saw %+v", seen)
	}
	// After its end, and within a year of it: Expired, so that it may renew itself.
	later := start.Add(100 * day)
	seen, host, controller = meet(t, h.ClientTLS(web, at(later)), server(later), later)
	ok(t, errors.Join(host, controller))
	if seen.ID != "web-1" || !seen.Expired {
		t.Errorf("the controller saw %+v", seen)
	}

	tooLate := start.Add(CertificateFor + RenewFor + time.Hour)
	for name, c := range map[string]struct {
		client, server *tls.Config
		host, control  error
	}{
		"a year after its end":      {h.ClientTLS(web, at(tooLate)), server(tooLate), nil, ErrExpired},
		"certificate of a fleet":    {h.ClientTLS(other.certificate("web-1", start), at(start)), server(start), nil, ErrForeignFleet},
		"controller of a fleet":     {h.ClientTLS(web, at(start)), other.online.ServerTLS(nil, at(start)), ErrForeignFleet, nil},
		"a host plays controller":   {h.ClientTLS(web, at(start)), playing(web), ErrUnsigned, nil},
		"controller's has ended":    {h.ClientTLS(web, at(later)), server(start), ErrExpired, nil},
		"a clock before its start":  {h.ClientTLS(web, at(start.Add(-2*day))), server(start), ErrUnsigned, nil},
		"of a CA of its own":        {h.ClientTLS(selfMade(t, "web-1"), at(start)), server(start), nil, ErrUnsigned},
		"its controller is a clone": {h.ClientTLS(web, at(start)), playing(selfMade(t, "controller")), ErrUnsigned, nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, host, controller := meet(t, c.client, c.server, start)
			if c.host != nil {
				is(t, host, c.host)
			}
			if c.control != nil {
				is(t, controller, c.control)
			}
			if host == nil || controller == nil {
				t.Errorf("host %v, controller %v", host, controller)
			}
		})
	}
}

func playing(certificate *tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS13}
}

// selfMade is a certificate with the right names, by another CA.
func selfMade(t *testing.T, id string) *tls.Certificate {
	return newFleet(t, "example.net", 1).certificate(id, start)
}

// The CA of a controller is good for one fleet, whatever it issues.
func TestIntermediateIsHeldToItsFleet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net", 1)
	stolen := *f.online.view.root
	stolen.Fleet = "example.org"
	thief := &Online{ca: f.online.ca, view: &view{root: &stolen}}
	key, request, err := NewRequest("web-1")
	ok(t, err)
	issued, err := thief.IssueHost(request, "web-1", start)
	ok(t, err)
	made, err := tls.X509KeyPair(issued.Chain, key)
	ok(t, err)
	chain := []*x509.Certificate{made.Leaf, f.online.ca.certificate}
	_, err = verifyPeer(&stolen, chain, kindHost, x509.ExtKeyUsageClientAuth, start)
	is(t, err, ErrUnsigned)
	if err != nil && !strings.Contains(err.Error(), "permitted") {
		t.Errorf("another reason: %v", err)
	}
}

// Names with underscores are names of SPIFFE trust domains, and of no DNS.
func TestFleetNames(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{
		"example.net": true, "edge_2": true, "a-b.c": true,
		"": false, "Example.net": false, "a/b": false, "spiffe://example.net": false, "a b": false, strings.Repeat("a", 256): false,
	} {
		if err := CheckFleetName(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
		if !good {
			continue
		}
		f := newFleet(t, name, 1)
		certificate := f.certificate("web-1", start)
		_, err := verifyPeer(f.online.view.root, []*x509.Certificate{certificate.Leaf, f.online.ca.certificate}, kindHost, x509.ExtKeyUsageClientAuth, start)
		ok(t, err)
	}
}

func TestRequestsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net", 1)
	_, good, err := NewRequest("web-1")
	ok(t, err)
	encode := func(key any) []byte {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
		ok(t, err)
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	}
	block, _ := pem.Decode(good)
	block.Bytes[len(block.Bytes)-1] ^= 1
	for name, c := range map[string]struct {
		request []byte
		id      string
		want    error
	}{
		"large":           {make([]byte, MaxRequest+1), "web-1", ErrTooLarge},
		"no PEM":          {[]byte("x"), "web-1", ErrMalformed},
		"key not held":    {pem.EncodeToMemory(block), "web-1", ErrMalformed},
		"RSA":             {encode(must(rsa.GenerateKey(rand.Reader, 2048))), "web-1", ErrMalformed},
		"P-384":           {encode(must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))), "web-1", ErrMalformed},
		"id with a slash": {good, "web/1", ErrMalformed},
		"no id":           {good, "", ErrMalformed},
		"dots":            {good, "..", ErrMalformed},
		"long id":         {good, strings.Repeat("a", maxID+1), ErrMalformed},
		"CA has ended":    {good, "web-1", ErrExpired},
	} {
		now := start
		if c.want == ErrExpired { //nolint:errorlint // of the table
			now = start.Add(intermediateFor + day)
		}
		t.Run(name, func(t *testing.T) { is(t, errOf(f.online.IssueHost(c.request, c.id, now)), c.want) })
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	f, other := newFleet(t, "example.net", 1), newFleet(t, "example.org", 1)
	made, err := NewToken(f.repository.Root(), []string{"203.0.113.1:7443", "[2001:db8::1]:7443"}, map[string]string{"role": "web"})
	ok(t, err)
	read, err := ParseToken(" " + made.String() + "\n")
	ok(t, err)
	if read.Secret != made.Secret || read.Labels["role"] != "web" || len(read.Controllers) != 2 {
		t.Errorf("read %+v instead of %+v", read, made)
	}
	again, err := NewToken(f.repository.Root(), []string{"203.0.113.1:7443"}, nil)
	ok(t, err)
	if again.Secret == made.Secret || SecretHash(again.Secret) == SecretHash(made.Secret) {
		t.Error("one secret twice")
	}
	root, err := PinnedRoot(f.online.Metadata().Roots, read.Root)
	ok(t, err)
	ok(t, errOf(NewHost(t.TempDir(), root)))
	is(t, errOf(PinnedRoot(other.online.Metadata().Roots, read.Root)), ErrForeignFleet)

	text := made.String()
	changed := func(change func(t *Token)) string {
		c := made
		change(&c)
		return c.String()
	}
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"cut":               {text[:len(text)-5], ErrMalformed},
		"other version":     {"sluice2" + text[7:], ErrMalformed},
		"empty":             {"", ErrMalformed},
		"not JSON":          {tokenPrefix + "eHg", ErrMalformed},
		"long":              {text + strings.Repeat("A", maxToken), ErrTooLarge},
		"no controller":     {changed(func(c *Token) { c.Controllers = nil }), ErrMalformed},
		"no port":           {changed(func(c *Token) { c.Controllers = []string{"203.0.113.1"} }), ErrMalformed},
		"short secret":      {changed(func(c *Token) { c.Secret = "AAAA" }), ErrMalformed},
		"no root":           {changed(func(c *Token) { c.Root = "" }), ErrMalformed},
		"label":             {changed(func(c *Token) { c.Labels = map[string]string{"": ""} }), ErrMalformed},
		"a million labels":  {text + strings.Repeat("A", 20_000_000), ErrTooLarge},
		"more than so many": {changed(func(c *Token) { c.Labels = manyLabels(maxLabels + 1) }), ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) { is(t, errOf(ParseToken(c.text)), c.want) })
	}
}

func manyLabels(n int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all["l"+strings.Repeat("x", i%8)+string(rune('a'+i%26))+string(rune('a'+i/26%26))+string(rune('a'+i/676%26))+string(rune('a'+i/17576))] = "v"
	}
	return all
}

// TestPrivateCAIsWhole: ca.pem is all that a program needs which believes no chain that does not
// end in a certificate of itself.
func TestPrivateCAIsWhole(t *testing.T) {
	t.Parallel()
	ca, caKey, err := NewCA("example.net", time.Now())
	ok(t, err)
	text, _, err := NewIntermediate("example.net", ca, caKey, time.Now())
	ok(t, err)
	var all []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		ok(t, err)
		all = append(all, c)
	}
	if len(all) != 2 || all[0].CheckSignatureFrom(all[1]) != nil || all[1].CheckSignatureFrom(all[1]) != nil {
		t.Errorf("%d certificates, of which the last is not the end of the chain", len(all))
	}
}
