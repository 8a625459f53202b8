package api

import (
	"context"
	"net/http"
)

// Policy asks for the texts of the newest bundle.
func (c *Client) Policy(ctx context.Context) (*PolicyTexts, error) {
	return ask[PolicyTexts](ctx, c, http.MethodGet, "/api/v1/policy", nil)
}

// CheckPolicy asks what is wrong with a policy, for all hosts.
func (c *Client) CheckPolicy(ctx context.Context, d PolicyDraft) (*PolicyChecked, error) {
	return ask[PolicyChecked](ctx, c, http.MethodPost, "/api/v1/policy/check", d)
}

// DiffPolicy asks what a policy opens and closes against the newest bundle.
func (c *Client) DiffPolicy(ctx context.Context, d PolicyDraft) (*PolicyDiff, error) {
	return ask[PolicyDiff](ctx, c, http.MethodPost, "/api/v1/policy/diff", d)
}

// Map asks from which countries a service of hosts can be reached.
func (c *Client) Map(ctx context.Context, q FleetMapQuestion) (*FleetMap, error) {
	return ask[FleetMap](ctx, c, http.MethodPost, "/api/v1/map", q)
}

// Reach asks who reaches which service of hosts.
func (c *Client) Reach(ctx context.Context, q FleetReachQuestion) (*FleetReach, error) {
	return ask[FleetReach](ctx, c, http.MethodPost, "/api/v1/reach", q)
}

// AskExplain asks what happens to one packet, by class of hosts.
func (c *Client) AskExplain(ctx context.Context, q FleetExplainQuestion) (*FleetAnswers, error) {
	return ask[FleetAnswers](ctx, c, http.MethodPost, "/api/v1/ask/explain", q)
}

// AskQuery asks what happens to all packets that fit, by class of hosts.
func (c *Client) AskQuery(ctx context.Context, q FleetQueryQuestion) (*FleetAnswers, error) {
	return ask[FleetAnswers](ctx, c, http.MethodPost, "/api/v1/ask/query", q)
}
