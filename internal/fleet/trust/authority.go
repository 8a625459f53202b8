package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"sluice/internal/base/regular"
)

// How long certificates are good for. Clocks of hosts may be behind by [clockSlack].
const (
	rootCAFor       = 20 * 365 * 24 * time.Hour
	intermediateFor = 3 * 365 * 24 * time.Hour
	clockSlack      = time.Hour
)

// authority issues certificates: the offline CA, or a controller's intermediate one.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// NewCA makes the offline certificate authority of a fleet: certificate and key, PEM.
func NewCA(fleet string, now time.Time) (certificate, key []byte, err error) {
	if err := CheckFleetName(fleet); err != nil {
		return nil, nil, err
	}
	return newAuthority(nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: fleet + " offline CA"}, NotAfter: now.Add(rootCAFor), MaxPathLen: 1,
	}, fleet, now)
}

// NewIntermediate makes the CA of a controller, whose certificates are good for hosts and
// controllers of this fleet alone. The offline CA's follows it: most programs believe no
// chain that does not end in a certificate of itself.
func NewIntermediate(fleet string, caCertificate, caKey []byte, now time.Time) (certificate, key []byte, err error) {
	ca, err := decodeAuthority(caCertificate, caKey)
	if err != nil {
		return nil, nil, err
	}
	certificate, key, err = newAuthority(ca, &x509.Certificate{
		Subject: pkix.Name{CommonName: fleet + " controller CA"}, NotAfter: now.Add(intermediateFor), MaxPathLenZero: true,
	}, fleet, now)
	return append(certificate, encodeCertificate(ca.certificate.Raw)...), key, err
}

func newAuthority(parent *authority, template *x509.Certificate, fleet string, now time.Time) (certificate, key []byte, err error) {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template.NotBefore = now.Add(-clockSlack)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	template.PermittedURIDomains, template.PermittedDNSDomainsCritical = []string{fleet}, true
	if parent == nil {
		parent = &authority{template, own}
	}
	der, err := parent.issue(template, &own.PublicKey)
	if err != nil {
		return nil, nil, err
	}
	key, err = EncodePrivate(own)
	return encodeCertificate(der), key, err
}

// issue signs a certificate with a serial number of its own.
func (a *authority) issue(template *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	serial := make([]byte, 16)
	if _, err := rand.Read(serial); err != nil {
		return nil, err
	}
	serial[0] &= 0x7f
	template.SerialNumber = new(big.Int).SetBytes(serial)
	return x509.CreateCertificate(rand.Reader, template, a.certificate, public, a.key)
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func decodeAuthority(certificate, key []byte) (*authority, error) {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return nil, fmt.Errorf("certificate of a CA: %w", ErrMalformed)
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("certificate of a CA: %w: %s", ErrMalformed, err.Error())
	}
	signer, err := DecodePrivate(key)
	if err != nil {
		return nil, err
	}
	if keyHash(parsed.PublicKey) != keyHash(signer.Public()) {
		return nil, errors.New("certificate of a CA: its key is another one")
	}
	return &authority{parsed, signer}, nil
}

// keyHash names a public key: the hexadecimal SHA-256 of its SubjectPublicKeyInfo.
func keyHash(key crypto.PublicKey) string {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

const (
	caName    = "ca.pem"
	caKeyName = "ca-key.pem"
)

// AddOnlineCA puts the intermediate CA into a controller's folder.
func AddOnlineCA(dir string, certificate, key []byte) error {
	if _, err := decodeAuthority(certificate, key); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, caKeyName), key, 0o600); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, caName), certificate, 0o644)
}

// AuthorityEnds is when the certificate of the intermediate CA does; zero where there is none.
func (o *Online) AuthorityEnds() time.Time {
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.ca == nil {
		return time.Time{}
	}
	return o.ca.certificate.NotAfter
}

// readAuthority reads the intermediate CA; nil where there is none.
func readAuthority(dir string) (*authority, error) {
	certificate, err := regular.Read(filepath.Join(dir, caName), maxKey)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	key, err := regular.Read(filepath.Join(dir, caKeyName), maxKey)
	if err != nil {
		return nil, err
	}
	return decodeAuthority(certificate, key)
}
