package nftables_test

import (
	"context"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/backend/conformance"
	"sluice/internal/backend/nftables"
	"sluice/internal/lab/testnet"
)

// namespace is a host of the conformance suite.
type namespace struct{ *testnet.Namespace }

// Take loads one step.
func (n namespace) Take(s backend.Step) error {
	return n.Do(func() error { return s.Take(context.Background()) })
}

func TestConformance(t *testing.T) {
	testnet.Require(t, testnet.Nftables, testnet.NftNAT, testnet.NftConnLimit)
	conformance.Run(t, nftables.New(), nftables.New().Capabilities(context.Background()), namespace{testnet.New(t).Unnamed("host")})
}
