package backend

import (
	"encoding/binary"
	"errors"
	"slices"
)

// An encoded artifact may be of parts, so that who keeps it keeps a part once
// that several artifacts have: what is in a large set, above all.

// partsHead begins what Join makes; a number of parts follows, then the length
// of each and its bytes. Numbers are varints.
const partsHead = "sluice parts 1\n"

// Join makes one of several parts.
func Join(parts ...[]byte) []byte {
	size := len(partsHead) + binary.MaxVarintLen64
	for _, p := range parts {
		size += binary.MaxVarintLen64 + len(p)
	}
	out := append(make([]byte, 0, size), partsHead...)
	out = binary.AppendUvarint(out, uint64(len(parts)))
	for _, p := range parts {
		out = append(binary.AppendUvarint(out, uint64(len(p))), p...)
	}
	return out
}

// ErrParts says that Join did not make it.
var ErrParts = errors.New("it has no parts, or is damaged")

// Split takes apart what Join made; the parts share its memory.
func Split(data []byte) ([][]byte, error) {
	if len(data) < len(partsHead) || string(data[:len(partsHead)]) != partsHead {
		return nil, ErrParts
	}
	rest := data[len(partsHead):]
	count, n := binary.Uvarint(rest)
	if n <= 0 || count > uint64(len(rest)) {
		return nil, ErrParts
	}
	rest = rest[n:]
	parts := make([][]byte, 0, count)
	for range count {
		size, n := binary.Uvarint(rest)
		if n <= 0 || size > uint64(len(rest)-n) {
			return nil, ErrParts
		}
		parts, rest = append(parts, slices.Clip(rest[n:n+int(size)])), rest[n+int(size):] //nolint:gosec // not longer than rest
	}
	if len(rest) > 0 {
		return nil, ErrParts
	}
	return parts, nil
}
