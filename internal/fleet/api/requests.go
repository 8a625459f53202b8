package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"sluice/internal/fleet/wire"
)

// WaitingError says that what was asked for is not done: it waits for the approval of a second
// person, or nobody gave it.
type WaitingError struct{ Request Request }

func (e *WaitingError) Error() string {
	r := &e.Request
	switch r.State {
	case RequestRefused:
		text := fmt.Sprintf("%s refused request %s", r.By, r.Id)
		if r.Why != "" {
			text += fmt.Sprintf(": %q", r.Why)
		}
		return text
	case RequestExpired:
		return fmt.Sprintf("nobody approved request %s until %s", r.Id, r.Expires.Local().Format(time.DateTime))
	}
	return fmt.Sprintf("it is not done yet: request %s waits for the approval of a second person, until %s", r.Id, r.Expires.Local().Format(time.DateTime))
}

// Patient has the client wait where what it asks for needs the approval of a second person; told
// hears of the request. What comes of it is answered as if it had come at once.
func (c *Client) Patient(told func(Request)) { c.told = told }

// decidedEvery is how often it is asked whether somebody has decided.
const decidedEvery = time.Second

// await waits until somebody has decided on a request, and is what the operation answered.
func (c *Client) await(ctx context.Context, is Request) (json.RawMessage, error) {
	if c.told == nil {
		return nil, &WaitingError{is}
	}
	c.told(is)
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), &WaitingError{is})
		case <-time.After(decidedEvery):
		}
		now, err := c.Request(ctx, is.Id)
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		if err != nil {
			continue
		}
		switch is = *now; is.State {
		case RequestDone:
			return is.Answer, nil
		case RequestFailed:
			return nil, &wire.Failure{Text: is.Failure, Kind: wire.KindBadRequest}
		case RequestRefused, RequestExpired:
			return nil, &WaitingError{is}
		case RequestWaiting, RequestApproved:
		}
	}
}

// Requests asks for what waits for approval, or for all of the last month, the newest first.
func (c *Client) Requests(ctx context.Context, all bool) (*Requests, error) {
	return ask[Requests](ctx, c, http.MethodGet, fmt.Sprintf("/api/v1/requests?all=%v", all), nil)
}

// Request asks for one.
func (c *Client) Request(ctx context.Context, id string) (*Request, error) {
	return ask[Request](ctx, c, http.MethodGet, "/api/v1/requests/"+url.PathEscape(id), nil)
}

// Approve has a request be done.
func (c *Client) Approve(ctx context.Context, id string, a Approval) (*Request, error) {
	return ask[Request](ctx, c, http.MethodPost, "/api/v1/requests/"+url.PathEscape(id)+"/approve", a)
}

// Refuse ends one.
func (c *Client) Refuse(ctx context.Context, id, why string) (*Request, error) {
	return ask[Request](ctx, c, http.MethodPost, "/api/v1/requests/"+url.PathEscape(id)+"/refuse", Why{why})
}
