package lists

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"sluice/internal/base/addrset"
	"sluice/internal/base/fetch"
	"sluice/internal/language/resolve"
)

// checked reads what a list's server gave, and refuses what is not a list of
// addresses, an error page for one, and what is far smaller or larger than the copy.
func checked(url, path, copied string) (addrset.Set, error) {
	next, err := readSet(url, path)
	if err != nil {
		return next, err
	}
	if next.IsEmpty() {
		return next, fmt.Errorf("%s: the list is empty", fetch.Redact(url))
	}
	old, err := readSet(url, copied)
	if errors.Is(err, fs.ErrNotExist) {
		return next, nil
	}
	if err != nil {
		return next, nil //nolint:nilerr // a damaged copy is no reason to refuse a good one
	}
	return next, sized(fetch.Redact(url), old, next)
}

func readSet(url, path string) (addrset.Set, error) {
	f, err := openCopy(path)
	if err != nil {
		return addrset.Set{}, err
	}
	defer f.Close()
	return addressesOf(fetch.Redact(url), f)
}

func addressesOf(name string, text io.Reader) (addrset.Set, error) {
	var b addrset.Builder
	err := resolve.ReadSetFile(name, text, b.AddRange)
	return b.Set(), err
}

// Addresses are those of the new copy of a list, or of the old one.
func (g *Staging) Addresses(url string) (addrset.Set, error) {
	text, name, err := g.Open(url, 0)
	if err != nil {
		return addrset.Set{}, err
	}
	defer text.Close()
	return addressesOf(name, text)
}

// Addresses are those of the copy of a list; no server is asked.
func (s *Store) Addresses(url string) (addrset.Set, error) {
	text, name, err := copyOf(url, s.path(url))
	if err != nil {
		return addrset.Set{}, err
	}
	defer text.Close()
	return addressesOf(name, text)
}
