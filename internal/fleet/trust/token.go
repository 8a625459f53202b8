package trust

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"strings"
)

const (
	tokenPrefix    = "sluice1."
	maxToken       = 8 << 10
	maxControllers = 16
	secretBytes    = 32
)

// Token lets a host enrol. It carries what the host believes before it has heard from
// anybody: which root.json is the right one, and its labels, which no controller gives.
type Token struct {
	Root        string            `json:"root"` // hexadecimal SHA-256 of root.json
	Secret      string            `json:"secret"`
	Controllers []string          `json:"controllers"` // host:port
	Labels      map[string]string `json:"labels,omitempty"`
}

// NewToken makes a token with a fresh secret.
func NewToken(root []byte, controllers []string, labels map[string]string) (Token, error) {
	secret := make([]byte, secretBytes)
	if _, err := rand.Read(secret); err != nil {
		return Token{}, err
	}
	t := Token{HashOf(root), base64.RawURLEncoding.EncodeToString(secret), controllers, labels}
	return t, t.check()
}

// String is the text that people copy.
func (t Token) String() string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // of strings
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(text)
}

// ParseToken reads what people copied.
func ParseToken(text string) (Token, error) {
	var t Token
	text = strings.TrimSpace(text)
	if len(text) > maxToken {
		return t, fmt.Errorf("the token is %w: %d bytes, at most %d", ErrTooLarge, len(text), maxToken)
	}
	body, has := strings.CutPrefix(text, tokenPrefix)
	if !has {
		return t, fmt.Errorf("the token is %w: one begins with %s", ErrMalformed, tokenPrefix)
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil {
		return t, fmt.Errorf("the token is %w: it was not copied completely", ErrMalformed)
	}
	if err := shaped("the token", data, maxToken); err != nil {
		return t, err
	}
	if err := strictly("the token", data, &t); err != nil {
		return t, err
	}
	return t, t.check()
}

func (t Token) check() error {
	secret, err := base64.RawURLEncoding.Strict().DecodeString(t.Secret)
	if err != nil || len(secret) != secretBytes || !isHash(t.Root) {
		return fmt.Errorf("the token is %w: it was not copied completely", ErrMalformed)
	}
	if len(t.Controllers) == 0 || len(t.Controllers) > maxControllers {
		return fmt.Errorf("the token is %w: it names %d controllers, and may name 1 to %d", ErrMalformed, len(t.Controllers), maxControllers)
	}
	for _, c := range t.Controllers {
		if _, _, err := net.SplitHostPort(c); err != nil {
			return fmt.Errorf("the token is %w: controller %.80q is no HOST:PORT", ErrMalformed, c)
		}
	}
	return CheckLabels(t.Labels)
}

// SecretHash is what a controller keeps of a token's secret, which is random and long: no
// slow hash is needed.
func SecretHash(secret string) string { return HashOf([]byte(secret)) }

// PinnedRoot finds the root.json that a token names in the chain that a controller sent.
// Only after that does a host send the token's secret, over [Host.ClientTLS].
func PinnedRoot(roots [][]byte, hash string) ([]byte, error) {
	for _, data := range roots {
		if HashOf(data) != hash {
			continue
		}
		is, err := readRoot(data)
		if err != nil {
			return nil, err
		}
		return data, is.signed("root", is.Metadata)
	}
	return nil, fmt.Errorf("the root.json of this controller is %w: it is not the one that the token names", ErrForeignFleet)
}
