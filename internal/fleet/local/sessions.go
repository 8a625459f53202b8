package local

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"sync"
	"time"
)

// sessions are those who have opened the page.
type sessions struct {
	cookie string // its name, which has the port: browsers give a cookie to all ports of a host

	mutex sync.Mutex
	token string               // that begins the next one; "" is none
	until map[string]time.Time // by secret
}

// sessionFor is how long a session lasts.
const sessionFor = 12 * time.Hour

// invite makes a token that begins a session; the one before is good no more.
func (s *sessions) invite() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.token = rand.Text()
	return s.token
}

// begin takes a token, and is the cookie of the session that it begins; nil where it is not
// the one that is good.
func (s *sessions) begin(token string) *http.Cookie {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1 {
		return nil
	}
	s.token = ""
	secret := rand.Text()
	s.until[secret] = time.Now().Add(sessionFor)
	return &http.Cookie{Name: s.cookie, Value: secret, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: int(sessionFor / time.Second)} //nolint:gosec // the loopback has no TLS
}

// of is the secret of the session that a request is of.
func (s *sessions) of(r *http.Request) (secret string, is bool) {
	c, err := r.Cookie(s.cookie)
	if err != nil {
		return "", false
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	until, is := s.until[c.Value]
	return c.Value, is && time.Now().Before(until)
}
