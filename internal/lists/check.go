package lists

import (
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"

	"sluice/internal/addrset"
	"sluice/internal/fetch"
	"sluice/internal/resolve"
)

const (
	// minShare is the share of the addresses of either family, in percent, that
	// a new copy has to keep; less looks like a list that was cut off.
	minShare = 80
	// shortList is up to how many ranges a list may lose what it wants.
	shortList = 10
)

// ShrunkError refuses a list with far fewer addresses than the copy in use.
type ShrunkError struct {
	List     string
	Family   string // "IPv4" or "IPv6"
	Old, New string // addresses of the copy in use and of what was refused
	Percent  int64
}

func (e *ShrunkError) Error() string {
	return fmt.Sprintf("%s: the new list has %d %% of the %s addresses of the copy in use (%s instead of %s); a list that was cut off looks like this, so the copy stays",
		e.List, e.Percent, e.Family, e.New, e.Old)
}

// checked reads what a list's server gave, and refuses what is no list of
// addresses, an error page for one, and what is far smaller than the copy.
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
	return next, shrunk(fetch.Redact(url), old, next)
}

func shrunk(name string, old, next addrset.Set) error {
	if old.Len4()+old.Len6() <= shortList {
		return nil
	}
	for _, f := range []struct {
		name      string
		old, next *big.Int
	}{
		{"IPv4", new(big.Int).SetUint64(old.Count4()), new(big.Int).SetUint64(next.Count4())},
		{"IPv6", old.Count6(), next.Count6()},
	} {
		have := new(big.Int).Mul(f.next, big.NewInt(100))
		if have.Cmp(new(big.Int).Mul(f.old, big.NewInt(minShare))) < 0 {
			return &ShrunkError{List: name, Family: f.name, Old: f.old.String(), New: f.next.String(), Percent: have.Div(have, f.old).Int64()}
		}
	}
	return nil
}

func readSet(url, path string) (addrset.Set, error) {
	f, err := os.Open(path)
	if err != nil {
		return addrset.Set{}, err
	}
	defer f.Close()
	var b addrset.Builder
	err = resolve.ReadSetFile(fetch.Redact(url), f, b.AddRange)
	return b.Set(), err
}
