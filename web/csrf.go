package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
)

// CSRFHeader is the header by which the page shows that a request that changes something is
// its own: another page cannot read what the session says, nor set it.
const CSRFHeader = "Sluice-CSRF"

// CSRF is what that header has to say in a session, by the session's secret.
func CSRF(secret string) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte("csrf"))
	return hex.EncodeToString(h.Sum(nil))
}

// Own says that a request of a session that changes something is the page's own; one that
// changes nothing needs not show it.
func Own(r *http.Request, secret string) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	return hmac.Equal([]byte(r.Header.Get(CSRFHeader)), []byte(CSRF(secret)))
}
