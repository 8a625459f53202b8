package nftables

import (
	"context"

	"sluice/internal/backend/nftables/live"
	"sluice/internal/backend/trace"
)

// Trace asks a copy of the network namespace, with the rules of every tool in it.
func (nftables) Trace(ctx context.Context, q trace.Question) (*trace.Result, error) {
	return live.Ask(ctx, q, Table, markTable)
}

// Sample follows packets of the network namespace itself.
func (nftables) Sample(ctx context.Context, q trace.Sampling) error {
	return live.Sample(ctx, q, Table, markTable)
}

var (
	_ trace.Tracer  = nftables{}
	_ trace.Sampler = nftables{}
)
