package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/wire"
)

// Socket is where the controller of a directory listens.
func Socket(dir string) string { return filepath.Join(dir, "controller.sock") }

// Most bytes of a request that is not a blob, and of an answer.
const (
	MostRequest = 4 << 20
	mostAnswer  = 256 << 20
)

// ErrNotRunning says that no controller answers there.
var ErrNotRunning = errors.New("no controller runs there")

// Client asks a controller. Refusals are *wire.Failure.
type Client struct {
	http  http.Client
	base  string
	token string // "": who asks is known otherwise
	told  func(Request)
}

// NewClient asks the controller of a directory.
func NewClient(dir string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", Socket(dir))
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("%s: %w", Socket(dir), ErrNotRunning)
		}
		return c, err
	}
	return &Client{http: http.Client{Transport: &http.Transport{DialContext: dial}}, base: "http://sluice-controller"}
}

// NewRemote asks the controller at a URL, https://HOST:PORT, by a token.
func NewRemote(base, token string, config *tls.Config) *Client {
	return &Client{
		http: http.Client{
			Transport:     &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, Proxy: http.ProxyFromEnvironment},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token is for this one alone
		},
		base: strings.TrimSuffix(base, "/"), token: token,
	}
}

// NewFailing is a client that fails whatever it is asked.
func NewFailing(err error) *Client {
	return &Client{http: http.Client{Transport: failing{err}}, base: "http://sluice-controller"}
}

type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

// Status asks whose controller it is.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return ask[Status](ctx, c, http.MethodGet, "/api/v1/status", nil)
}

// Hosts asks for the hosts of a selector, "" being all.
func (c *Client) Hosts(ctx context.Context, selector string) (*Hosts, error) {
	return ask[Hosts](ctx, c, http.MethodGet, "/api/v1/hosts?selector="+url.QueryEscape(selector), nil)
}

// Inventory asks what inventory.yaml would say.
func (c *Client) Inventory(ctx context.Context) (*Inventory, error) {
	return ask[Inventory](ctx, c, http.MethodGet, "/api/v1/inventory", nil)
}

// Facts asks for the facts of a host, by their SHA-256.
func (c *Client) Facts(ctx context.Context, hash string) ([]byte, error) {
	text, err := ask[json.RawMessage](ctx, c, http.MethodGet, "/api/v1/facts/"+url.PathEscape(hash), nil)
	if err != nil {
		return nil, err
	}
	return *text, nil
}

// Revoke ends what a host may do.
func (c *Client) Revoke(ctx context.Context, host, why string) error {
	_, err := ask[none](ctx, c, http.MethodPost, "/api/v1/hosts/"+url.PathEscape(host)+"/revoke", Why{why})
	return err
}

// SetLabels gives a host other labels, by a signed order.
func (c *Client) SetLabels(ctx context.Context, host string, order []byte) (*Labelled, error) {
	return ask[Labelled](ctx, c, http.MethodPut, "/api/v1/hosts/"+url.PathEscape(host)+"/labels", LabelOrder{order})
}

// Guests asks for the guests of a selector and of a host, "" being all.
func (c *Client) Guests(ctx context.Context, selector, host string) (all []Guest, err error) {
	for after := ""; ; {
		query := url.Values{"selector": {selector}, "host": {host}, "after": {after}}
		some, err := ask[Guests](ctx, c, http.MethodGet, "/api/v1/guests?"+query.Encode(), nil)
		if err != nil {
			return nil, err
		}
		all = append(all, some.Guests...)
		if after = some.Next; after == "" {
			return all, nil
		}
	}
}

// Guest asks for one.
func (c *Client) Guest(ctx context.Context, id string) (*Guest, error) {
	return ask[Guest](ctx, c, http.MethodGet, "/api/v1/guests/"+url.PathEscape(id), nil)
}

// PutGuest makes a guest, changes it or moves it.
func (c *Client) PutGuest(ctx context.Context, id string, g NewGuest) (*Guest, error) {
	if g.Addresses == nil {
		g.Addresses = []netip.Addr{}
	}
	return ask[Guest](ctx, c, http.MethodPut, "/api/v1/guests/"+url.PathEscape(id), g)
}

// RemoveGuest forgets one.
func (c *Client) RemoveGuest(ctx context.Context, id string) error {
	_, err := ask[none](ctx, c, http.MethodDelete, "/api/v1/guests/"+url.PathEscape(id), nil)
	return err
}

// CreateToken lets hosts enrol.
func (c *Client) CreateToken(ctx context.Context, t NewToken) error {
	_, err := ask[none](ctx, c, http.MethodPost, "/api/v1/tokens", t)
	return err
}

// Missing asks which blobs the controller does not have.
func (c *Client) Missing(ctx context.Context, hashes []string) ([]string, error) {
	has, err := ask[Hashes](ctx, c, http.MethodPost, "/api/v1/blobs/missing", Hashes{hashes})
	if err != nil {
		return nil, err
	}
	return has.Hashes, nil
}

// PutBlob gives a blob.
func (c *Client) PutBlob(ctx context.Context, hash string, content io.Reader) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, c.base+"/api/v1/blobs/"+hash, content)
	if err != nil {
		return err
	}
	_, err = do[none](c, r)
	return err
}

// Publish gives metadata and begins a roll-out.
func (c *Client) Publish(ctx context.Context, p Publish) (*rollout.Rollout, error) {
	return ask[rollout.Rollout](ctx, c, http.MethodPost, "/api/v1/publish", p)
}

// Rollouts asks for so many roll-outs, the newest first. Their hosts are counted, and not told of.
func (c *Client) Rollouts(ctx context.Context, limit int) ([]rollout.Rollout, error) {
	all, err := ask[Rollouts](ctx, c, http.MethodGet, "/api/v1/rollouts?limit="+strconv.Itoa(limit), nil)
	if err != nil {
		return nil, err
	}
	return all.Rollouts, nil
}

// Rollout asks for one roll-out.
func (c *Client) Rollout(ctx context.Context, id int64) (*rollout.Rollout, error) {
	return ask[rollout.Rollout](ctx, c, http.MethodGet, "/api/v1/rollouts/"+strconv.FormatInt(id, 10), nil)
}

// Command has a roll-out do something.
func (c *Client) Command(ctx context.Context, rolloutID int64, what Command, why string) (*rollout.Rollout, error) {
	return ask[rollout.Rollout](ctx, c, http.MethodPost, "/api/v1/rollouts/"+strconv.FormatInt(rolloutID, 10)+"/"+string(what), Why{why})
}

// none is the answer that has no body.
type none struct{}

func ask[T any](ctx context.Context, c *Client, method, path string, in any) (*T, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	return do[T](c, r)
}

func do[T any](c *Client, r *http.Request) (*T, error) {
	answer, err := c.send(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	out := new(T)
	switch answer.StatusCode {
	case http.StatusNoContent:
		return out, nil
	case http.StatusOK:
		return out, json.NewDecoder(io.LimitReader(answer.Body, mostAnswer)).Decode(out)
	case http.StatusAccepted:
		var is Request
		if err := json.NewDecoder(io.LimitReader(answer.Body, mostAnswer)).Decode(&is); err != nil {
			return nil, err
		}
		text, err := c.await(r.Context(), is)
		if err != nil || len(text) == 0 {
			return out, err
		}
		return out, json.Unmarshal(text, out)
	}
	return nil, failureOf(answer)
}

// send sends a request as the caller that the client is.
func (c *Client) send(r *http.Request) (*http.Response, error) {
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(r)
	var outer *url.Error
	if errors.As(err, &outer) { // which names a URL that nobody typed
		err = outer.Err
	}
	return answer, err
}

// failureOf is why a controller does not do what it was asked.
func failureOf(answer *http.Response) error {
	f := &wire.Failure{}
	if err := json.NewDecoder(io.LimitReader(answer.Body, mostAnswer)).Decode(f); err != nil || f.Text == "" {
		return fmt.Errorf("the controller answers %s", answer.Status)
	}
	return f
}
