package api

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
)

// accessPrefix lets programs that look for secrets where none belong find ours.
const accessPrefix = "sluice_access_"

const secretBytes = 32

// ErrNoToken says that a text is no token by which a controller is asked.
var ErrNoToken = errors.New("not a token of a controller: one begins with " + accessPrefix)

// NewSecret makes a token by which a controller is asked. It is random and long: no slow
// hash is needed.
func NewSecret() string {
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // never fails
	return accessPrefix + base64.RawURLEncoding.EncodeToString(secret)
}

// SecretHash is what a controller keeps of a token: its SHA-256. What cannot be a token is
// ErrNoToken.
func SecretHash(token string) (hash [sha256.Size]byte, err error) {
	body, has := strings.CutPrefix(token, accessPrefix)
	secret, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if !has || err != nil || len(secret) != secretBytes {
		return hash, ErrNoToken
	}
	return sha256.Sum256([]byte(token)), nil
}

// AccessID names the access of a token, of its hash.
func AccessID(hash [sha256.Size]byte) string { return hex.EncodeToString(hash[:6]) }
