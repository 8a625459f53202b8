package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"sluice/internal/fleet/rollout"
)

// DraftID is the id of a draft with these texts, on those of a bundle. It is long enough that nobody
// makes two drafts of one id, shows one of them and has the other signed.
func DraftID(bundle int64, texts map[string]string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d\n", bundle)
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		fmt.Fprintf(h, "%d %s\n%d %s\n", len(name), name, len(texts[name]), texts[name])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Drafts asks for all that the caller may see, the newest first.
func (c *Client) Drafts(ctx context.Context) (*Drafts, error) {
	return ask[Drafts](ctx, c, http.MethodGet, "/api/v1/drafts", nil)
}

// CreateDraft keeps one.
func (c *Client) CreateDraft(ctx context.Context, d NewDraft) (*Draft, error) {
	return ask[Draft](ctx, c, http.MethodPost, "/api/v1/drafts", d)
}

// Draft asks for one with its texts, which are what its id says.
func (c *Client) Draft(ctx context.Context, id string) (*Draft, error) {
	d, err := ask[Draft](ctx, c, http.MethodGet, "/api/v1/drafts/"+url.PathEscape(id), nil)
	if err == nil && (d.Id != id || DraftID(d.Bundle, d.Texts) != id) {
		return nil, fmt.Errorf("the controller gives other texts than those of draft %s", id)
	}
	return d, err
}

// RollOutDraft has the controller sign a draft, and roll it out.
func (c *Client) RollOutDraft(ctx context.Context, id, why string) (*rollout.Rollout, error) {
	return ask[rollout.Rollout](ctx, c, http.MethodPost, "/api/v1/drafts/"+url.PathEscape(id)+"/roll-out", Why{Why: why})
}

// RemoveDraft forgets one.
func (c *Client) RemoveDraft(ctx context.Context, id string) error {
	_, err := ask[none](ctx, c, http.MethodDelete, "/api/v1/drafts/"+url.PathEscape(id), nil)
	return err
}
