package nftables

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"sluice/internal/base/addrset"
)

// firstHead begins an artifact of format 1, which was compressed JSON and nothing
// else: the policy that a host boots with may be one until it is applied anew.
var firstHead = []byte{0x1f, 0x8b}

// decodeFirst reads format 1. Only there did sets that do not count keep their
// addresses as ranges.
func decodeFirst(data []byte) (*artifact, error) {
	var a artifact
	if err := unpackJSON(data, &a); err != nil {
		return nil, err
	}
	var tuples struct {
		Tree struct {
			Sets []struct{ Elements struct{ Tuples []string } }
		}
	}
	if err := unpackJSON(data, &tuples); err != nil {
		return nil, err
	}
	if a.Format != 1 || a.Tree == nil || len(tuples.Tree.Sets) != len(a.Tree.Sets) {
		return nil, fmt.Errorf("format %d, this version reads 1 and %d", a.Format, artifactFormat)
	}
	if slices.Contains(a.Tree.Sets, nil) || slices.Contains(a.Tree.Chains, nil) {
		return nil, errNone
	}
	a.Format = artifactFormat
	for i, s := range a.Tree.Sets {
		s.Elements.Tuples = tuples.Tree.Sets[i].Elements.Tuples
		if !s.Counted {
			s.Elements.Addresses, s.Elements.Ranges = addrset.Of(s.Elements.Ranges...), nil
		}
	}
	if err := a.Tree.check(); err != nil {
		return nil, err
	}
	return &a, nil
}

var errNone = errors.New("a set or a chain is none")

// unpackJSON reads compressed JSON.
func unpackJSON(data []byte, into any) error {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(z, maxDecoded))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}
