package api

import (
	"context"
	"net/http"
	"net/url"
)

// Lists asks for the live lists.
func (c *Client) Lists(ctx context.Context) (*LiveLists, error) {
	return ask[LiveLists](ctx, c, http.MethodGet, "/api/v1/lists", nil)
}

// RefreshList has the server of a live list asked now.
func (c *Client) RefreshList(ctx context.Context, set string, how ListRefresh) (*LiveListState, error) {
	return ask[LiveListState](ctx, c, http.MethodPost, "/api/v1/lists/"+url.PathEscape(set)+"/refresh", how)
}

// PlanList asks what a refresh of a live list would change, and whom it would cut.
func (c *Client) PlanList(ctx context.Context, set string) (*ListPlan, error) {
	return ask[ListPlan](ctx, c, http.MethodPost, "/api/v1/lists/"+url.PathEscape(set)+"/plan", nil)
}

// UndoList goes back to what a live list held before.
func (c *Client) UndoList(ctx context.Context, set string) (*LiveListState, error) {
	return ask[LiveListState](ctx, c, http.MethodPost, "/api/v1/lists/"+url.PathEscape(set)+"/undo", nil)
}
