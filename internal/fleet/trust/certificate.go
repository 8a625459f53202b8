package trust

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"sluice/internal/base/english"
)

const (
	// CertificateFor is how long a certificate of a host or a controller is good for.
	// Half-way it is renewed.
	CertificateFor = 30 * 24 * time.Hour
	// RenewFor is how long after its end a certificate still renews itself, and does
	// nothing else.
	RenewFor = 365 * 24 * time.Hour
	// MaxRequest bounds a request for a certificate, in bytes.
	MaxRequest = 16 << 10
)

// Kinds of those who have certificates: the first element of the path of a SPIFFE id.
const (
	kindHost       = "host"
	kindController = "controller"
)

// maxID is the length of a DNS name. A common name has at most 64 bytes, and is for people.
const (
	maxID         = 253
	maxCommonName = 64
)

// CheckHostID says whether a host may have this id: letters, digits, dots, dashes and
// underscores, at most 63 of them.
func CheckHostID(id string) error {
	if err := spiffeid.ValidatePathSegment(id); err != nil || len(id) > maxID {
		return fmt.Errorf("id of a host %.70q is %w: letters, digits and . - _, at most %d of them", id, ErrMalformed, maxID)
	}
	return nil
}

func spiffeURL(fleet, kind, id string) (*url.URL, error) {
	domain, err := spiffeid.TrustDomainFromString(fleet)
	if err != nil {
		return nil, err
	}
	name, err := spiffeid.FromSegments(domain, kind, id)
	if err != nil {
		return nil, err
	}
	return name.URL(), nil
}

// NewRequest makes a host's key and asks for a certificate of it, both in PEM. The key
// never leaves the host.
func NewRequest(id string) (key, request []byte, err error) {
	if err := CheckHostID(id); err != nil {
		return nil, nil, err
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: commonName(id)}, own)
	if err != nil {
		return nil, nil, err
	}
	key, err = EncodePrivate(own)
	return key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), err
}

func commonName(id string) pkix.Name { return pkix.Name{CommonName: id[:min(len(id), maxCommonName)]} }

// Issued is a certificate that a controller has made.
type Issued struct {
	Chain    []byte    `json:"chain"` // PEM, with the controller's CA
	ID       string    `json:"id"`
	Serial   string    `json:"serial"`
	Key      string    `json:"key"` // hexadecimal SHA-256 of its SubjectPublicKeyInfo
	NotAfter time.Time `json:"not-after"`
}

// RequestKey reads a request for a certificate and names its key, as [Issued] does. Who
// asks has shown that he holds it.
func RequestKey(request []byte) (string, error) {
	parsed, err := readRequest(request)
	if err != nil {
		return "", err
	}
	return keyHash(parsed.PublicKey), nil
}

func readRequest(request []byte) (*x509.CertificateRequest, error) {
	const what = "the request for a certificate"
	if len(request) > MaxRequest {
		return nil, fmt.Errorf("%s is %w: %d bytes, at most %d", what, ErrTooLarge, len(request), MaxRequest)
	}
	block, rest := pem.Decode(request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(rest) > 0 {
		return nil, fmt.Errorf("%s is %w: not one in PEM", what, ErrMalformed)
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = parsed.CheckSignature()
	}
	if err != nil {
		return nil, fmt.Errorf("%s is %w: %s", what, ErrMalformed, err.Error())
	}
	switch key := parsed.PublicKey.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() {
			return nil, fmt.Errorf("%s is %w: a curve other than P-256", what, ErrMalformed)
		}
	default:
		return nil, fmt.Errorf("%s is %w: a key that is neither P-256 nor ed25519", what, ErrMalformed)
	}
	return parsed, nil
}

// IssueHost makes the certificate of a host from a request, of which the key alone
// counts. Whoever calls it has seen a token, or the [Identity] of this host, expired or not.
func (o *Online) IssueHost(request []byte, id string, now time.Time) (Issued, error) {
	if err := CheckHostID(id); err != nil {
		return Issued{}, err
	}
	parsed, err := readRequest(request)
	if err != nil {
		return Issued{}, err
	}
	return o.issue(parsed.PublicKey, kindHost, id, nil, x509.ExtKeyUsageClientAuth, now)
}

func (o *Online) issue(public any, kind, id string, names []string, usage x509.ExtKeyUsage, now time.Time) (Issued, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.ca == nil {
		return Issued{}, fmt.Errorf("%s: no CA: %w", o.dir, fs.ErrNotExist)
	}
	if now.After(o.ca.certificate.NotAfter) {
		return Issued{}, expired("the controller's CA", o.ca.certificate.NotAfter, now)
	}
	name, err := spiffeURL(o.view.root.Fleet, kind, id)
	if err != nil {
		return Issued{}, err
	}
	end := now.Add(CertificateFor)
	if end.After(o.ca.certificate.NotAfter) {
		end = o.ca.certificate.NotAfter
	}
	template := &x509.Certificate{
		Subject: commonName(id), URIs: []*url.URL{name},
		NotBefore: now.Add(-clockSlack), NotAfter: end.UTC().Truncate(time.Second),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		BasicConstraintsValid: true,
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	der, err := o.ca.issue(template, public)
	if err != nil {
		return Issued{}, err
	}
	return Issued{
		Chain: append(encodeCertificate(der), encodeCertificate(o.ca.certificate.Raw)...),
		ID:    id, Serial: template.SerialNumber.Text(16), Key: keyHash(public), NotAfter: template.NotAfter,
	}, nil
}

// Identity is whose certificate a connection has.
type Identity struct {
	ID       string    `json:"id"`
	Serial   string    `json:"serial"`
	Key      string    `json:"key"` // as Issued has it
	NotAfter time.Time `json:"not-after"`
	Expired  bool      `json:"expired,omitempty"` // it may renew itself, nothing else
}

// verifyPeer verifies whose certificate it is: from a CA of root.json, for this use, with
// an id of this fleet and kind. One that has ended counts as when it ended, for a year.
func verifyPeer(r *root, chain []*x509.Certificate, kind string, usage x509.ExtKeyUsage, now time.Time) (Identity, error) {
	leaf := chain[0]
	who := identityOf(leaf, now)
	what := fmt.Sprintf("the certificate of %s %q", kind, who.ID)
	at := now
	if who.Expired {
		at = leaf.NotAfter
	}
	if now.After(leaf.NotAfter.Add(RenewFor)) {
		return who, expired(what, leaf.NotAfter, now)
	}
	if now.Before(leaf.NotBefore) {
		return who, fmt.Errorf("%s is %w: it begins on %s, and the clock here says %s", what, ErrUnsigned, english.Moment(leaf.NotBefore), english.Moment(now))
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	if len(leaf.URIs) == 1 {
		if id, err := spiffeid.FromURI(leaf.URIs[0]); err == nil && id.TrustDomain().Name() != r.Fleet {
			return who, foreign(what, id.TrustDomain().Name(), r.Fleet)
		}
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: r.cas, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
		return who, fmt.Errorf("%s is %w: %s", what, ErrUnsigned, err.Error())
	}
	if wants, err := spiffeURL(r.Fleet, kind, who.ID); err != nil || len(leaf.URIs) != 1 || leaf.URIs[0].String() != wants.String() {
		return who, fmt.Errorf("%s is %w: its SPIFFE id is not of a %s", what, ErrUnsigned, kind)
	}
	return who, nil
}

func identityOf(leaf *x509.Certificate, now time.Time) Identity {
	who := Identity{Serial: leaf.SerialNumber.Text(16), Key: keyHash(leaf.PublicKey), NotAfter: leaf.NotAfter, Expired: now.After(leaf.NotAfter)}
	if len(leaf.URIs) == 1 {
		path := leaf.URIs[0].Path
		who.ID = path[strings.LastIndexByte(path, '/')+1:]
	}
	return who
}

// HalfLife is when a certificate is due for renewal.
func HalfLife(leaf *x509.Certificate) time.Time {
	return leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2)
}
