package api

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Tokens asks for those by which hosts enrol, the newest first.
func (c *Client) Tokens(ctx context.Context) (*Tokens, error) {
	return ask[Tokens](ctx, c, http.MethodGet, "/api/v1/tokens", nil)
}

// WithdrawToken ends one.
func (c *Client) WithdrawToken(ctx context.Context, id string) error {
	_, err := ask[none](ctx, c, http.MethodDelete, "/api/v1/tokens/"+url.PathEscape(id), nil)
	return err
}

// Accesses asks who may ask by a token.
func (c *Client) Accesses(ctx context.Context) (*Accesses, error) {
	return ask[Accesses](ctx, c, http.MethodGet, "/api/v1/access", nil)
}

// CreateAccess lets a program ask.
func (c *Client) CreateAccess(ctx context.Context, a NewAccess) (*Access, error) {
	return ask[Access](ctx, c, http.MethodPost, "/api/v1/access", a)
}

// WithdrawAccess ends what somebody may ask.
func (c *Client) WithdrawAccess(ctx context.Context, id string) error {
	_, err := ask[none](ctx, c, http.MethodDelete, "/api/v1/access/"+url.PathEscape(id), nil)
	return err
}

// Audit asks for at most limit entries behind a number; below 0: for the newest.
func (c *Client) Audit(ctx context.Context, after int64, limit int) (*Audit, error) {
	path := "/api/v1/audit?limit=" + strconv.Itoa(limit)
	if after >= 0 {
		path += "&after=" + strconv.FormatInt(after, 10)
	}
	return ask[Audit](ctx, c, http.MethodGet, path, nil)
}

// VerifyAudit asks whether the audit is intact, and has a head SEQ:HASH, unless that is "".
func (c *Client) VerifyAudit(ctx context.Context, head string) (*AuditVerified, error) {
	return ask[AuditVerified](ctx, c, http.MethodGet, "/api/v1/audit/verify?head="+url.QueryEscape(head), nil)
}

// CreateLink lets a person log in once.
func (c *Client) CreateLink(ctx context.Context, l NewLink) (*Access, error) {
	return ask[Access](ctx, c, http.MethodPost, "/api/v1/links", l)
}

// Session asks who asks.
func (c *Client) Session(ctx context.Context) (*Session, error) {
	return ask[Session](ctx, c, http.MethodGet, "/api/v1/session", nil)
}

// EndSession ends the session by which the client asks.
func (c *Client) EndSession(ctx context.Context) error {
	_, err := ask[none](ctx, c, http.MethodDelete, "/api/v1/session", nil)
	return err
}

// LogIn uses a link once, and begins a session that asks by a token of [NewSecret].
func LogIn(ctx context.Context, base, link, token string, config *tls.Config) (*Access, error) {
	hash, err := SecretHash(token)
	if err != nil {
		return nil, err
	}
	return ask[Access](ctx, NewRemote(base, "", config), http.MethodPost, "/login", Login{Link: link, Secret: hex.EncodeToString(hash[:])})
}

// Event is one that the controller reports.
type Event struct {
	ID   string          `json:"id"`
	Kind string          `json:"event"`
	Data json.RawMessage `json:"data"`
}

// mostEvent bounds the line of an event, in bytes.
const mostEvent = 1 << 20

// Events gives to f what changes from now on, or behind an event that was told of, until the
// stream ends.
func (c *Client) Events(ctx context.Context, after string, f func(Event) error) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/api/v1/events", http.NoBody)
	if err != nil {
		return err
	}
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	answer, err := c.send(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return failureOf(answer)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, mostEvent)
	is := Event{}
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case name == "id":
			is.ID = value
		case name == "event":
			is.Kind = value
		case name == "data":
			is.Data = json.RawMessage(value)
		case lines.Text() == "" && is.Kind != "":
			if err := f(is); err != nil {
				return err
			}
			is = Event{}
		}
	}
	return lines.Err()
}
