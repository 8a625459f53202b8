package geo

import (
	"fmt"
	"math/big"
	"strings"
	"time"

	"sluice/internal/base/addrset"
)

// Origin says where data come from and on which terms.
type Origin struct {
	Source      string    `json:"source"`        // who publishes it: "DB-IP Lite"
	Licence     string    `json:"licence"`       // "CC-BY-4.0"; empty where the data do not say
	Attribution string    `json:"attribution"`   // to be shown where the licence asks for it
	Date        time.Time `json:"date,omitzero"` // of the data, in UTC; zero where it is not known
	From        []string  `json:"from"`          // the files or addresses it was read from
	ETag        string    `json:"etag,omitempty"`
	Modified    string    `json:"modified,omitempty"`
}

// Counts are the sizes of a set of addresses. Prefixes are the fewest that
// cover it, ranges likewise.
type Counts struct {
	Ranges4    int      `json:"ranges4"`
	Prefixes4  int      `json:"prefixes4"`
	Addresses4 uint64   `json:"addresses4"`
	Ranges6    int      `json:"ranges6"`
	Prefixes6  int      `json:"prefixes6"`
	Addresses6 Quantity `json:"addresses6"`
}

// CountsOf counts s.
func CountsOf(s addrset.Set) Counts {
	c := Counts{
		Ranges4: s.Len4(), Ranges6: s.Len6(),
		Addresses4: s.Count4(), Addresses6: Quantity{s.Count6()},
	}
	c.Prefixes4, c.Prefixes6 = s.CountPrefixes()
	return c
}

// Quantity is a number of IPv6 addresses. In JSON it is a string of decimal
// digits, since most readers of JSON lose digits of so large a number. The zero
// value is 0.
type Quantity struct{ n *big.Int }

// Big returns the number; the caller must not change it.
func (q Quantity) Big() *big.Int {
	if q.n == nil {
		return new(big.Int)
	}
	return q.n
}

// MarshalText returns the decimal digits.
func (q Quantity) MarshalText() ([]byte, error) { return q.Big().MarshalText() }

// UnmarshalText reads decimal digits.
func (q *Quantity) UnmarshalText(b []byte) error {
	q.n = new(big.Int)
	return q.n.UnmarshalText(b)
}

// String returns the number in networks of 64 bits, the size of one subnet: in
// full up to a million, then in three digits and a power of ten ("4.29e9").
func (q Quantity) String() string {
	if b := q.Big(); b.Sign() > 0 && b.BitLen() <= 64 {
		return "<1"
	}
	nets := new(big.Int).Rsh(q.Big(), 64)
	if nets.BitLen() <= 20 {
		return nets.String()
	}
	f, _ := new(big.Float).SetInt(nets).Float64()
	digits, power, _ := strings.Cut(fmt.Sprintf("%.2e", f), "e+")
	return digits + "e" + strings.TrimLeft(power, "0")
}

// CountryInfo is a country and how much of the data is its own.
type CountryInfo struct {
	Country
	Counts
}

// Info describes a database.
type Info struct {
	Origin
	BuiltIn   bool          `json:"built_in"`         // the snapshot, not an update
	File      string        `json:"file"`             // where it lies; empty for the snapshot
	Updated   time.Time     `json:"updated,omitzero"` // when it was put there; zero for the snapshot
	Overlaps  int           `json:"overlaps"`         // rows of the source that lay over another country's
	Total     Counts        `json:"total"`            // sums over the countries
	Countries []CountryInfo `json:"countries"`
}

// Age returns how old the data are; it makes no sense without a Date.
func (i Info) Age(now time.Time) time.Duration { return now.Sub(i.Date) }

func (c *Counts) add(o Counts) {
	c.Ranges4 += o.Ranges4
	c.Prefixes4 += o.Prefixes4
	c.Addresses4 += o.Addresses4
	c.Ranges6 += o.Ranges6
	c.Prefixes6 += o.Prefixes6
	c.Addresses6 = Quantity{new(big.Int).Add(c.Addresses6.Big(), o.Addresses6.Big())}
}
