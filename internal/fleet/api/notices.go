package api

import (
	"context"
	"net/http"
	"strconv"
)

// Notices asks what is wrong that people hear of; with ended also what was.
func (c *Client) Notices(ctx context.Context, ended bool) (*Notices, error) {
	return ask[Notices](ctx, c, http.MethodGet, "/api/v1/notices?ended="+strconv.FormatBool(ended), nil)
}

// TestNotices sends a notice to each receiver.
func (c *Client) TestNotices(ctx context.Context) (*TestedNotices, error) {
	return ask[TestedNotices](ctx, c, http.MethodPost, "/api/v1/notices/test", nil)
}
