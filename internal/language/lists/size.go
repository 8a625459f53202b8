package lists

import (
	"fmt"
	"math/big"
	"net/netip"

	"sluice/internal/base/addrset"
)

const (
	// minShare is the share of the addresses of either family, in percent, that
	// a new copy has to keep; less looks like a list that was cut off.
	minShare = 80
	// shortList is up to how many ranges a list may lose what it wants.
	shortList = 10
	// maxGrowth is how many times the addresses of the copy a new one may have
	// in either family, where that is much at all.
	maxGrowth = 10
)

// What is much of a family: an IPv4 /8 and an IPv6 /16 of addresses together, and
// an IPv4 /7 and an IPv6 /15 in one range. No list of single hosts and networks
// comes near it from one copy to the next.
var (
	manyOf = map[addrset.Family]*big.Int{addrset.IPv4: power(32 - 8), addrset.IPv6: power(128 - 16)}
	wideOf = map[addrset.Family]*big.Int{addrset.IPv4: power(32 - 7), addrset.IPv6: power(128 - 15)}
)

func power(bits uint) *big.Int { return new(big.Int).Lsh(big.NewInt(1), bits) }

// internet is what hosts have addresses of. Lists of what nobody should send
// from name large parts of the rest, which may come and go.
var internet = addrset.FromPrefixes(
	netip.MustParsePrefix("0.0.0.0/1"), netip.MustParsePrefix("128.0.0.0/2"), netip.MustParsePrefix("192.0.0.0/3"),
	netip.MustParsePrefix("2000::/3"),
)

// SizeError refuses a list with far fewer or far more addresses than the copy in
// use. The copy stays.
type SizeError struct {
	List string
	Text string // what is wrong with it
}

func (e *SizeError) Error() string { return e.List + ": " + e.Text }

// sized refuses a list whose size cannot be meant.
func sized(name string, old, next addrset.Set) error {
	text := shrunk(old, next)
	if text == "" {
		text = grown(old, next)
	}
	if text == "" {
		return nil
	}
	return &SizeError{name, text}
}

func shrunk(old, next addrset.Set) string {
	if old.Len4()+old.Len6() <= shortList {
		return ""
	}
	for _, f := range families {
		before, after := count(old, f), count(next, f)
		have := new(big.Int).Mul(after, big.NewInt(100))
		if have.Cmp(new(big.Int).Mul(before, big.NewInt(minShare))) < 0 {
			return fmt.Sprintf("the new list has only %d%% of the %s addresses of the copy in use (%s instead of %s); it may be truncated, so the copy stays in use",
				new(big.Int).Div(have, before).Int64(), familyName(f), after, before)
		}
	}
	return ""
}

// grown looks at what a list names of the internet that the copy does not.
func grown(old, next addrset.Set) string {
	whole := next
	old, next = old.Intersect(internet), next.Intersect(internet)
	for r := range next.Difference(old).Each() {
		f := familyOf(r.From)
		if count(addrset.Of(r), f).Cmp(wideOf[f]) >= 0 {
			return fmt.Sprintf("the new list contains all of %s, which the copy in use does not; that looks like a mistake, so the copy stays in use", around(whole, r))
		}
	}
	for _, f := range families {
		before, after := count(old, f), count(next, f)
		if after.Cmp(manyOf[f]) > 0 && after.Cmp(new(big.Int).Mul(before, big.NewInt(maxGrowth))) > 0 {
			return fmt.Sprintf("the new list has more than %d times the %s addresses of the copy in use (%s instead of %s); that looks like a mistake, so the copy stays in use",
				maxGrowth, familyName(f), after, before)
		}
	}
	return ""
}

// around is the range of a set that a part of it is in.
func around(s addrset.Set, part addrset.Range) addrset.Range {
	for r := range s.Each() {
		if r.From.Is4() == part.From.Is4() && r.To.Compare(part.From) >= 0 {
			return r
		}
	}
	return part
}

var families = []addrset.Family{addrset.IPv4, addrset.IPv6}

func familyName(f addrset.Family) string {
	if f == addrset.IPv4 {
		return "IPv4"
	}
	return "IPv6"
}

func familyOf(a netip.Addr) addrset.Family {
	if a.Is4() {
		return addrset.IPv4
	}
	return addrset.IPv6
}

func count(s addrset.Set, f addrset.Family) *big.Int {
	if f == addrset.IPv4 {
		return new(big.Int).SetUint64(s.Count4())
	}
	return s.Count6()
}
