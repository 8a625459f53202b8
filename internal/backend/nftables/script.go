package nftables

import (
	"context"
	"errors"

	"sluice/internal/backend"
	"sluice/internal/system/kernel/nft"
)

// Script is a transaction as text for nft.
type Script string

// Take runs nft.
func (s Script) Take(ctx context.Context) error { return disturbed(nft.Run(ctx, string(s))) }

// Text is the input of nft -f.
func (s Script) Text() string { return string(s) }

// classed is an error of the kernel of a class that callers of the backend know.
type classed struct {
	error
	as error
}

func (c classed) Unwrap() []error { return []error{c.error, c.as} }

// disturbed says of an error whether another tool was quicker.
func disturbed(err error) error {
	if errors.Is(err, nft.ErrChanged) {
		return classed{err, backend.ErrChanged}
	}
	return err
}
