package query

import (
	"fmt"
	"math"
	"math/big"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
)

// Count is how many addresses of each family a set has.
type Count struct {
	IPv4 uint64 `json:"ipv4"` // up to 2^32
	// IPv6 is in decimal digits, since most readers of JSON lose digits of so
	// large a number.
	IPv6 string `json:"ipv6"`

	six *big.Int // the same; nil of what was read from JSON
}

// sixes is how many addresses of IPv6 there are.
func (c Count) sixes() *big.Int {
	if c.six != nil {
		return c.six
	}
	if n, is := new(big.Int).SetString(c.IPv6, 10); is {
		return n
	}
	return new(big.Int)
}

// countOf counts a set.
func countOf(s addrset.Set) Count {
	six := s.Count6()
	return Count{IPv4: s.Count4(), IPv6: six.String(), six: six}
}

// String is such as "256 IPv4 addresses, 2^80 of IPv6".
func (c Count) String() string {
	n := c.sixes()
	four, six := c.IPv4 > 0, n.Sign() > 0
	switch {
	case four && six:
		return addresses(c.IPv4, "IPv4") + ", " + power(n) + " of IPv6"
	case four:
		return addresses(c.IPv4, "IPv4")
	case six && n.IsUint64() && n.Uint64() == 1:
		return "1 IPv6 address"
	case six:
		return power(n) + " IPv6 addresses"
	}
	return "no address"
}

func addresses(n uint64, family string) string {
	return english.Grouped(n) + " " + family + " " + english.Noun(n, "address")
}

// readable is up to what number digits say more than a power of two.
const readable = 1_000_000_000

// power writes a large number as a power of two, exact where it is one.
func power(n *big.Int) string {
	if n.IsUint64() && n.Uint64() <= readable {
		return english.Grouped(n.Uint64())
	}
	exponent := n.BitLen() - 1
	if int(n.TrailingZeroBits()) == exponent {
		return fmt.Sprintf("2^%d", exponent)
	}
	mantissa, _ := new(big.Float).SetMantExp(new(big.Float).SetInt(n), -exponent).Float64()
	log := float64(exponent) + math.Log2(mantissa)
	if rounded := math.Round(log*10) / 10; rounded != math.Round(log) {
		return fmt.Sprintf("about 2^%.1f", rounded)
	}
	return fmt.Sprintf("about 2^%.0f", log)
}

// weight orders sets by how much of the internet they are: the share of IPv4 and
// the share of IPv6's /64 networks in use together.
func (c Count) weight() float64 {
	six, _ := new(big.Float).SetInt(c.sixes()).Float64()
	return float64(c.IPv4)/math.Exp2(32) + six/math.Exp2(128)
}
