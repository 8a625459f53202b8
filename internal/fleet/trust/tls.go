package trust

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"sync"
	"time"
)

// RootTLS is how a host asks for the chain of root.json before it trusts anybody, and for
// nothing else: what comes is verified by the hash that its token carries.
func RootTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}
}

// ClientTLS is how a host talks to controllers: with its certificate, nil before it has
// one. Controllers are verified by the CA of root.json and their SPIFFE id, whatever
// name or address they are reached by.
func (h *Host) ClientTLS(certificate *tls.Certificate, clock func() time.Time) *tls.Config {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // VerifyConnection verifies
		VerifyConnection: func(state tls.ConnectionState) error {
			h.lock.Lock()
			root := h.view.root
			h.lock.Unlock()
			who, err := verifyPeer(root, state.PeerCertificates, kindController, x509.ExtKeyUsageServerAuth, clock())
			if err == nil && who.Expired {
				err = expired("the controller's certificate", who.NotAfter, clock())
			}
			return err
		},
	}
	if certificate != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	return config
}

// ServerTLS is how a controller serves hosts. Its certificate has these names and
// addresses, and is renewed half-way. Certificates of hosts are asked for and not
// required: who has none has no [PeerIdentity]. Whether a host was revoked is asked later.
func (o *Online) ServerTLS(names []string, clock func() time.Time) *tls.Config {
	config := o.WebTLS(names, clock)
	config.ClientAuth = tls.RequestClientCert // VerifyConnection verifies
	config.SessionTicketsDisabled = true      // a revoked host would come back by one
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return nil
		}
		o.lock.Lock()
		root := o.view.root
		o.lock.Unlock()
		_, err := verifyPeer(root, state.PeerCertificates, kindHost, x509.ExtKeyUsageClientAuth, clock())
		return err
	}
	return config
}

// WebTLS is how a controller serves people and programs, who have no certificates.
func (o *Online) WebTLS(names []string, clock func() time.Time) *tls.Config {
	var lock sync.Mutex
	var current *tls.Certificate
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			lock.Lock()
			defer lock.Unlock()
			if current != nil && clock().Before(HalfLife(current.Leaf)) {
				return current, nil
			}
			made, err := o.serverCertificate(names, clock())
			if err != nil {
				return nil, err
			}
			current = made
			return made, nil
		},
	}
}

func (o *Online) serverCertificate(names []string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	issued, err := o.issue(&key.PublicKey, kindController, "controller", names, x509.ExtKeyUsageServerAuth, now)
	if err != nil {
		return nil, err
	}
	text, err := EncodePrivate(key)
	if err != nil {
		return nil, err
	}
	made, err := tls.X509KeyPair(issued.Chain, text)
	return &made, err
}

// PeerIdentity is the host at the other end of a connection that [Online.ServerTLS] has
// verified; false for one without a certificate.
func PeerIdentity(state *tls.ConnectionState, now time.Time) (Identity, bool) {
	if state == nil || len(state.PeerCertificates) == 0 {
		return Identity{}, false
	}
	return identityOf(state.PeerCertificates[0], now), true
}
