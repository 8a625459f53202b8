package limits

import (
	"context"
	"errors"
	"time"

	"sluice/internal/backend/nftables"
	"sluice/internal/backend/trace"
	"sluice/internal/base/addrset"
	"sluice/internal/engine"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/stats"
	"sluice/internal/system/kernel/drops"
	"sluice/internal/system/kernel/netns"
)

const (
	unwatched      = "a flood that a rule drops"
	unwatchedAgain = "a flood that a rule drops, again"
	watched        = "the same, watched as sluice drops does"
	unbounded      = "the same, without rests"
	traced         = "the same, traced as sluice drops --trace does"
	byStatistics   = "the program, by the kernel's statistics"
)

const (
	injections = 60 // some seconds, with as many rests
	copies     = 200
)

// drops measures what it takes to watch what a rule drops in a flood. The sides take turns as
// wholes, since a program at the tracepoint costs every namespace.
func (b *bench) drops() (_ lookup, err error) {
	l, err := measure.NewLab(b.net, "flooded")
	if err != nil {
		return nil, err
	}
	if err := l.Nft("table inet flood { chain input { type filter hook input priority 0; udp dport 9 drop; }; }"); err != nil {
		return nil, err
	}
	drawn := measure.ByAddress(measure.Usable(addrset.All()), addrset.IPv4, 1<<16, b.seed)
	source, err := measure.Load(measure.UDP(drawn, measure.Target(addrset.IPv4, 9)))
	if err != nil {
		return nil, err
	}
	defer source.Close()
	inside, err := netns.Open(l.Namespace.Path())
	if err != nil {
		return nil, err
	}
	defer inside.Close()
	taken := map[string]stats.Series{}
	flood := func(name string, times int) error {
		var r measure.Run
		for range times {
			one, err := l.Inject(b, source, 1<<15)
			if err != nil {
				return err
			}
			if one.Survived > 0 {
				return errors.New("the rule lets packets through")
			}
			r.Packets += one.Packets
			r.Time += one.Time
		}
		if name != "" {
			taken[name] = append(taken[name], r.NsPerPacket())
		}
		return nil
	}
	// cycle is how many injections take as long as the tracing marks and rests.
	cycle := func() int {
		last := taken[unwatched][len(taken[unwatched])-1]
		return int(float64(3200*time.Millisecond)/(last*(1<<15))) + 1
	}
	if err := flood("", injections/4); err != nil {
		return nil, err
	}
	for range b.rounds(9) {
		err := errors.Join(flood(unwatched, injections), b.watching(inside.Number(), true, func(w *drops.Watcher) error {
			for w.Reckoned() == 0 { // behind the first second, which is watched whole
				if err := flood("", 1); err != nil {
					return err
				}
			}
			return flood(watched, injections)
		}), flood(unwatchedAgain, injections), b.watching(inside.Number(), false, func(w *drops.Watcher) error {
			if err := flood(unbounded, injections/4); err != nil {
				return err
			}
			measures, err := drops.Measure()
			if err != nil {
				return err
			}
			err = flood("", injections/4)
			each, failed := w.RunTime()
			taken[byStatistics] = append(taken[byStatistics], each)
			return errors.Join(err, failed, measures.Close())
		}), b.tracing(inside, func() error {
			if err := flood("", cycle()/2); err != nil { // until the marking rests
				return err
			}
			return flood(traced, 2*cycle())
		}))
		if err != nil {
			return nil, err
		}
	}
	b.say("UDP from 65,536 sources, dropped by one rule at the input hook; %d packets a second are copied.", copies)
	for _, name := range []string{unwatched, unwatchedAgain, watched, unbounded, traced, byStatistics} {
		b.add("a packet of a flood", name, whole, "ns", taken[name])
	}
	return func(_, of string) stats.Series { return taken[of] }, nil
}

// watching runs f while the drops of a namespace are counted, with rests or without, and some
// are copied.
func (b *bench) watching(number uint32, rests bool, f func(*drops.Watcher) error) error {
	w, err := drops.Watch(number)
	if err != nil {
		return err
	}
	defer w.Close()
	ctx, stop := context.WithCancel(b)
	defer stop()
	copied := make(chan error, 1)
	go func() { copied <- w.Sample(ctx, copies, func([]drops.Copy) {}) }()
	if rests {
		go w.Bound()
	}
	err = f(w)
	stop()
	return errors.Join(err, <-copied)
}

// tracing runs f while packets of a namespace are traced.
func (b *bench) tracing(inside *netns.Namespace, f func() error) error {
	ctx, stop := context.WithCancel(b)
	defer stop()
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- inside.Do(func() error {
			return nftables.New().(trace.Sampler).Sample(ctx, trace.Sampling{
				Rate: engine.TraceRate, Read: func() {}, Begun: func([]string) { close(begun) }, Dropped: func(*trace.Result) {}, Counted: func(trace.Sampled) {},
			})
		})
	}()
	select {
	case <-begun:
	case err := <-ended:
		return err
	}
	err := f()
	stop()
	return errors.Join(err, <-ended)
}
