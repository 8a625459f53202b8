package apply

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"

	"sluice/internal/backend"
)

// What large sets hold is most of an artifact and of a program, and seldom
// changes: it is kept apart, once for all generations that have it. In place of
// its parts, the blob of an artifact has a list of them.

// largePart is the size in bytes from which a part is kept apart.
const largePart = 16 << 10

// partsListed begins such a list, itself made by backend.Join. Behind it come the
// parts, each with a byte ahead: the part itself, or the name of its blob.
const (
	partsListed = "listed"
	inList      = 'i'
	apart       = 'a'
)

// listed is the blob of an artifact or program, and what has to be kept apart, by
// name. What is not made of parts is that blob itself.
func listed(data []byte) (blob []byte, large map[string][]byte) {
	parts, err := backend.Split(data)
	if err != nil {
		return data, nil
	}
	list := [][]byte{[]byte(partsListed)}
	large = map[string][]byte{}
	for _, p := range parts {
		if len(p) < largePart {
			list = append(list, append([]byte{inList}, p...))
			continue
		}
		id := blobID(p)
		large[id] = p
		list = append(list, append([]byte{apart}, id...))
	}
	return backend.Join(list...), large
}

func blobID(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// wholeID is the name that putWhole would give.
func wholeID(data []byte) string {
	blob, _ := listed(data)
	return blobID(blob)
}

// putWhole keeps an artifact or a program: parts are the blobs that it needs
// beside its own.
func (s store) putWhole(data []byte) (id string, parts []string, err error) {
	blob, large := listed(data)
	for id, part := range large {
		if err := s.putNamed(id, part); err != nil {
			return "", nil, err
		}
		parts = append(parts, id)
	}
	id, err = s.putBlob(blob)
	return id, parts, err
}

// whole gives what putWhole kept.
func (s store) whole(id string) ([]byte, error) {
	blob, err := s.blob(id)
	if err != nil {
		return nil, err
	}
	list, err := backend.Split(blob)
	if err != nil || len(list) == 0 || !bytes.Equal(list[0], []byte(partsListed)) {
		return blob, nil //nolint:nilerr // it has no parts
	}
	var parts [][]byte
	for _, p := range list[1:] {
		switch {
		case len(p) > 0 && p[0] == inList:
			parts = append(parts, p[1:])
		case len(p) > 0 && p[0] == apart:
			part, err := s.blob(string(p[1:]))
			if err != nil {
				return nil, err
			}
			parts = append(parts, part)
		default:
			return nil, &DamagedError{s.blobPath(id), backend.ErrParts}
		}
	}
	return backend.Join(parts...), nil
}
