package apply

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"

	"sluice/internal/backend"
)

// What large sets hold is most of an artifact and of a program, and seldom
// changes: it is kept apart, together, once for all generations that have it. In
// place of its parts, the blob of an artifact has a list of them.

// largePart is the size in bytes from which a part is kept apart, and apartFrom what such
// parts have together, below which they are not worth a file of their own.
const (
	largePart = 8 << 10
	apartFrom = 64 << 10
)

// partsListed begins such a list, itself made by backend.Join. The name of the
// blob with the large parts follows, then every part: itself behind a byte, or
// that byte alone, for the next one of that blob.
const (
	partsListed = "listed"
	inList      = 'i'
	apart       = 'a'
)

// listing is how an artifact or a program is kept.
type listing struct {
	id, partsID string // of the blobs; partsID is "" where there are no large parts
	blob, parts []byte
	whole       []byte
}

// listed is the listing of data; what is not made of parts is its blob itself.
func listed(data []byte) listing {
	parts, err := backend.Split(data)
	if err != nil {
		return listing{id: blobID(data), blob: data, whole: data}
	}
	out := listing{whole: data}
	var large [][]byte
	together := 0
	for _, p := range parts {
		if len(p) >= largePart {
			together += len(p)
		}
	}
	list := [][]byte{[]byte(partsListed), nil}
	for _, p := range parts {
		if len(p) < largePart || together < apartFrom {
			list = append(list, append([]byte{inList}, p...))
			continue
		}
		large = append(large, p)
		list = append(list, []byte{apart})
	}
	if len(large) > 0 {
		out.parts = backend.Join(large...)
		out.partsID = blobID(out.parts)
		list[1] = []byte(out.partsID)
	}
	out.blob = backend.Join(list...)
	out.id = blobID(out.blob)
	return out
}

func blobID(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// wholeID is the name that putWhole would give.
func wholeID(data []byte) string { return listed(data).id }

// putWhole keeps an artifact or a program: parts are the blobs that it needs
// beside its own.
func (s store) putWhole(data []byte) (id string, parts []string, err error) {
	return s.putListed(listed(data))
}

// putListed is putWhole of what is listed already.
func (s store) putListed(l listing) (id string, parts []string, err error) {
	if l.partsID != "" {
		if err := s.putNamed(l.partsID, l.parts); err != nil {
			return "", nil, err
		}
		parts = []string{l.partsID}
	}
	return l.id, parts, s.putNamed(l.id, l.blob)
}

// whole gives what putWhole kept.
func (s store) whole(id string) ([]byte, error) {
	blob, err := s.blob(id)
	if err != nil {
		return nil, err
	}
	list, err := backend.Split(blob)
	if err != nil || len(list) < 2 || !bytes.Equal(list[0], []byte(partsListed)) {
		return blob, nil //nolint:nilerr // it has no parts
	}
	var large, parts [][]byte
	if name := string(list[1]); name != "" {
		data, err := s.blob(name)
		if err != nil {
			return nil, err
		}
		if large, err = backend.Split(data); err != nil {
			return nil, &DamagedError{s.blobPath(name), err}
		}
	}
	for _, p := range list[2:] {
		switch {
		case len(p) > 0 && p[0] == inList:
			parts = append(parts, p[1:])
		case len(p) == 1 && p[0] == apart && len(large) > 0:
			parts, large = append(parts, large[0]), large[1:]
		default:
			return nil, &DamagedError{s.blobPath(id), backend.ErrParts}
		}
	}
	return backend.Join(parts...), nil
}
