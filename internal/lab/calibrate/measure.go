package calibrate

import (
	"cmp"
	"context"

	"sluice/internal/backend/nftables"
	"sluice/internal/backend/nftables/calibration"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
)

// Options say how long to measure.
type Options struct {
	Rounds  int // of packets
	Packets int // in a round; 0 is 32,768
	Loads   int // of loads
	// Say is told what goes on.
	Say func(format string, args ...any)
}

// Measured is what Measure found.
type Measured struct {
	Costs nftables.CostModel
	// Series has what each round found, by the constant's name; rounds of a constant
	// that is made of several others are those of all of them.
	Series map[string]stats.Series
	// Same is a cell against itself, in ns: what a difference is worth.
	Same stats.Series
	// Others is the part of all processors' time that other programs took.
	Others float64
	// Noise says why the constants should not be trusted; none where they may be.
	Noise []string
}

// Measure measures all constants on this machine. Root is needed; a machine that
// cannot inject packets gives an error. What was made is gone when it returns.
func Measure(ctx context.Context, o Options) (m *Measured, err error) {
	o.Packets = cmp.Or(o.Packets, 1<<15)
	m = &Measured{Costs: nftables.DefaultCosts(), Series: map[string]stats.Series{}}
	begin := timesNow()
	for _, part := range []func(context.Context, *testnet.Net, Options) error{m.packets, m.lookups, m.loads} {
		if err := testnet.Within("calibrate", func(net *testnet.Net) error { return part(ctx, net, o) }); err != nil {
			return nil, err
		}
	}
	m.Others = timesNow().others(begin)
	m.settle()
	return m, nil
}

// take adds what the rounds found of a constant.
func (m *Measured) take(name string, s stats.Series) {
	if _, known := nftables.ConstantNamed(name); !known {
		panic("calibrate: no constant is called " + name)
	}
	m.Series[name] = s
}

// median is what was found of a constant so far.
func (m *Measured) median(name string) float64 { return m.Series[name].Estimate().Median }

// each changes the figures of a series.
func each(s stats.Series, f func(float64) float64) stats.Series {
	out := make(stats.Series, len(s))
	for i, x := range s {
		out[i] = f(x)
	}
	return out
}

// times is how often a cell has what it measures.
func times(s stats.Series, n float64) stats.Series {
	return each(s, func(x float64) float64 { return x / n })
}

// less takes another constant's median from each round: medians of two constants
// are of different cells, but of the same rounds.
func less(s stats.Series, x float64) stats.Series {
	return each(s, func(y float64) float64 { return y - x })
}

// Calibration is the file of what was measured.
func (m *Measured) Calibration() *calibration.Calibration {
	c := &calibration.Calibration{Schema: calibration.Schema, Costs: m.Costs, Warnings: m.Noise, Spread: map[string]calibration.Bounds{}}
	for name, s := range m.Series {
		e := s.Estimate()
		c.Spread[name] = calibration.Bounds{Low: e.Low, High: e.High}
	}
	return c
}
