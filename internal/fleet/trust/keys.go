package trust

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/theupdateframework/go-tuf/v2/metadata"
)

// Signer has an ed25519 key, in memory or in an ssh-agent.
type Signer interface {
	Public() ed25519.PublicKey
	Sign(message []byte) ([]byte, error)
}

// PrivateKey is a key in memory.
type PrivateKey ed25519.PrivateKey

// NewKey makes a key.
func NewKey() (PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(nil)
	return PrivateKey(key), err
}

// Public is its public half.
func (k PrivateKey) Public() ed25519.PublicKey {
	return ed25519.PrivateKey(k).Public().(ed25519.PublicKey)
}

// Sign signs the message itself.
func (k PrivateKey) Sign(message []byte) ([]byte, error) {
	return ed25519.Sign(ed25519.PrivateKey(k), message), nil
}

// EncodePrivate writes a private key as PKCS #8 in PEM.
func EncodePrivate(key crypto.PrivateKey) ([]byte, error) {
	if own, ok := key.(PrivateKey); ok {
		key = ed25519.PrivateKey(own)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// DecodePrivate reads what EncodePrivate wrote: a [PrivateKey] or a [crypto.Signer].
func DecodePrivate(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("no private key in PEM (PKCS #8): %w", ErrMalformed)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("private key: %w: %s", ErrMalformed, err.Error())
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("private key: %w: it cannot sign", ErrMalformed)
	}
	return signer, nil
}

// DecodeRoleKey reads a key of a role.
func DecodeRoleKey(text []byte) (PrivateKey, error) {
	key, err := DecodePrivate(text)
	if err != nil {
		return nil, err
	}
	own, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("private key: %w: not ed25519", ErrMalformed)
	}
	return PrivateKey(own), nil
}

// roleKey is how documents name a public key, and under which id.
func roleKey(public ed25519.PublicKey) (*metadata.Key, string) {
	key := &metadata.Key{Type: metadata.KeyTypeEd25519, Scheme: metadata.KeySchemeEd25519, Value: metadata.KeyVal{PublicKey: hex.EncodeToString(public)}}
	id, err := key.ID()
	if err != nil {
		panic(err) // of three strings
	}
	return key, id
}

// signDocument adds a signature to a document of a role, in place of an older one of
// the same key.
func signDocument[T metadata.Roles](document *metadata.Metadata[T], by Signer) error {
	_, id := roleKey(by.Public())
	var others []metadata.Signature
	for _, s := range document.Signatures {
		if s.KeyID != id {
			others = append(others, s)
		}
	}
	document.Signatures = others
	_, err := document.Sign(tufSigner{by})
	return err
}

// tufSigner lets go-tuf sign with a Signer.
type tufSigner struct{ by Signer }

func (s tufSigner) PublicKey(...signature.PublicKeyOption) (crypto.PublicKey, error) {
	return s.by.Public(), nil
}

func (s tufSigner) SignMessage(message io.Reader, _ ...signature.SignOption) ([]byte, error) {
	var text bytes.Buffer
	if _, err := text.ReadFrom(message); err != nil {
		return nil, err
	}
	return s.by.Sign(text.Bytes())
}
