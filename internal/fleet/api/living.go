package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// Ban bans.
func (c *Client) Ban(ctx context.Context, in NewHoldings) (*Held, error) {
	return ask[Held](ctx, c, http.MethodPost, "/api/v1/bans", in)
}

// Unban lifts bans.
func (c *Client) Unban(ctx context.Context, in Lift) (*Lifted, error) {
	return ask[Lifted](ctx, c, http.MethodPost, "/api/v1/bans/lift", in)
}

// Allow lets in.
func (c *Client) Allow(ctx context.Context, in NewHoldings) (*Held, error) {
	return ask[Held](ctx, c, http.MethodPost, "/api/v1/allows", in)
}

// Disallow lifts what Allow let in.
func (c *Client) Disallow(ctx context.Context, in Lift) (*Lifted, error) {
	return ask[Lifted](ctx, c, http.MethodPost, "/api/v1/allows/lift", in)
}

// Bans asks for some bans that hold, behind an ID, of those within a range, "" being any.
func (c *Client) Bans(ctx context.Context, within, after string) (*Holdings, error) {
	return ask[Holdings](ctx, c, http.MethodGet, "/api/v1/bans?"+some(within, after), nil)
}

// Allows asks for some of what is let in, as Bans does.
func (c *Client) Allows(ctx context.Context, within, after string) (*Holdings, error) {
	return ask[Holdings](ctx, c, http.MethodGet, "/api/v1/allows?"+some(within, after), nil)
}

func some(within, after string) string {
	q := url.Values{}
	for name, value := range map[string]string{"what": within, "after": after} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q.Encode()
}

// OneBan asks for a ban and on which hosts it is in force.
func (c *Client) OneBan(ctx context.Context, id string) (*HoldingOn, error) {
	return ask[HoldingOn](ctx, c, http.MethodGet, "/api/v1/bans/"+url.PathEscape(id), nil)
}

// OneAllow asks the same of what is let in.
func (c *Client) OneAllow(ctx context.Context, id string) (*HoldingOn, error) {
	return ask[HoldingOn](ctx, c, http.MethodGet, "/api/v1/allows/"+url.PathEscape(id), nil)
}

// Living asks which hosts of a selector, "" being all, have in force what is in the log up
// to a number.
func (c *Client) Living(ctx context.Context, seq int64, hosts string) (*Standing, error) {
	return ask[Standing](ctx, c, http.MethodGet, "/api/v1/living?seq="+strconv.FormatInt(seq, 10)+"&hosts="+url.QueryEscape(hosts), nil)
}
