package engine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"sluice/internal/system/kernel/drops"
)

// DropWatch counts what the kernel drops in several network namespaces by one program, and
// looks at packets for all who want to see some, 200 a second in all. The zero value watches
// none. It is safe for concurrent use.
type DropWatch struct {
	mutex            sync.Mutex
	watched          map[uint32]int // namespaces, by how many want to have them watched
	now              *drops.Watcher // nil: there are none
	first            *drops.Watcher // is closed or not; it knows the reasons
	before           map[drops.Place]uint64
	missed, reckoned uint64
	looking          bool
	renewed          chan struct{} // is closed with the next change

	passing sync.Mutex // nothing waits for the other one that holds it
	readers map[chan []drops.Copy]bool
}

// Begin watches one more namespace. The error is that of drops.Watch, where it cannot be.
func (d *DropWatch) Begin(number uint32) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.watched == nil {
		d.watched, d.before, d.renewed = map[uint32]int{}, map[drops.Place]uint64{}, make(chan struct{})
	}
	d.watched[number]++
	err := d.renew()
	if err != nil {
		d.leave(number)
	}
	return err
}

// End watches it no longer.
func (d *DropWatch) End(number uint32) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.leave(number)
	_ = d.renew() // with one fewer than could be watched
}

func (d *DropWatch) leave(number uint32) {
	if d.watched[number]--; d.watched[number] <= 0 {
		delete(d.watched, number)
	}
}

// renew puts a program in place of the one that there is. What is dropped meanwhile is
// counted once.
func (d *DropWatch) renew() error {
	var next *drops.Watcher
	if len(d.watched) > 0 {
		var err error
		if next, err = drops.Watch(slices.Sorted(maps.Keys(d.watched))...); err != nil {
			return err
		}
		if d.first == nil {
			d.first = next
		}
		go next.Bound()
	}
	var counted map[drops.Place]uint64
	if next != nil {
		counted, _ = next.Read() // what it has by now the other one has too
	}
	if d.now != nil {
		had, _ := d.now.Read()
		for p, n := range had {
			d.before[p] += n
		}
		for p, n := range counted {
			d.before[p] -= n
		}
		missed, _ := d.now.Missed()
		d.missed += missed
		d.reckoned += d.now.Reckoned()
		d.now.Close()
	}
	for p := range d.before { // its namespace may be another one's by now
		if p.Namespace != 0 && d.watched[p.Namespace] == 0 {
			delete(d.before, p)
		}
	}
	d.now = next
	close(d.renewed)
	d.renewed = make(chan struct{})
	return nil
}

// errUnwatched says that no namespace is watched.
var errUnwatched = errors.New("no network namespace is being watched")

// Read gives the packets so far, by place.
func (d *DropWatch) Read() (map[drops.Place]uint64, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.now == nil {
		return nil, errUnwatched
	}
	all, err := d.now.Read()
	for p, n := range d.before {
		if all != nil {
			all[p] += n
		}
	}
	return all, err
}

// Missed is how many were dropped that no place counts.
func (d *DropWatch) Missed() (uint64, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.now == nil {
		return 0, errUnwatched
	}
	n, err := d.now.Missed()
	return d.missed + n, err
}

// Reckoned is how many packets were not counted.
func (d *DropWatch) Reckoned() uint64 {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.now == nil {
		return d.reckoned
	}
	return d.reckoned + d.now.Reckoned()
}

// RunTime is that of the program that counts now.
func (d *DropWatch) RunTime() (float64, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.now == nil {
		return 0, errUnwatched
	}
	return d.now.RunTime()
}

// Reason is drops.Watcher.Reason.
func (d *DropWatch) Reason(number uint32) string { return d.first.Reason(number) }

// Reasons is drops.Watcher.Reasons.
func (d *DropWatch) Reasons() []string { return d.first.Reasons() }

// Blind is false.
func (d *DropWatch) Blind() bool { return false }

// ByReason are the packets of a namespace by reason, since it is watched. A reason without a
// name, which a module has, is among "other".
func (d *DropWatch) ByReason(number uint32) (map[string]uint64, error) {
	all, err := d.Read()
	out := map[string]uint64{}
	named := d.first.Reasons()
	for p, n := range all {
		if p.Namespace != number {
			continue
		}
		reason := d.first.Reason(p.Reason)
		if !slices.Contains(named, reason) {
			reason = cmp.Or(map[bool]string{true: "other"}[reason != ""], "unknown")
		}
		out[reason] += n
	}
	return out, err
}

// Sample is drops.Watcher.Sample, for several callers at once. Who is slow misses packets.
func (d *DropWatch) Sample(ctx context.Context, perSecond int, seen func([]drops.Copy)) error {
	mine := make(chan []drops.Copy, 16)
	d.mutex.Lock()
	if d.read(mine, true); !d.looking {
		d.looking = true
		go d.look(perSecond)
	}
	d.mutex.Unlock()
	defer func() {
		d.mutex.Lock()
		defer d.mutex.Unlock()
		if d.read(mine, false) == 0 {
			close(d.renewed) // it ends the looking
			d.renewed = make(chan struct{})
		}
	}()
	for {
		select {
		case all := <-mine:
			seen(all)
		case <-ctx.Done():
			return nil
		}
	}
}

// look passes on copies until nobody wants any.
func (d *DropWatch) look(perSecond int) {
	for {
		d.mutex.Lock()
		w, renewed := d.now, d.renewed
		d.looking = d.reading() > 0
		over := !d.looking
		d.mutex.Unlock()
		if over {
			return
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if w != nil {
				_ = w.Sample(ctx, perSecond, d.pass) // what fails is tried again with the next change
			}
		}()
		<-renewed
		stop()
		<-ended
	}
}

// read adds or removes a reader, and says how many there are then.
func (d *DropWatch) read(r chan []drops.Copy, wants bool) int {
	d.passing.Lock()
	defer d.passing.Unlock()
	if d.readers == nil {
		d.readers = map[chan []drops.Copy]bool{}
	}
	if d.readers[r] = true; !wants {
		delete(d.readers, r)
	}
	return len(d.readers)
}

func (d *DropWatch) reading() int {
	d.passing.Lock()
	defer d.passing.Unlock()
	return len(d.readers)
}

func (d *DropWatch) pass(all []drops.Copy) {
	d.passing.Lock()
	defer d.passing.Unlock()
	for r := range d.readers {
		select {
		case r <- all:
		default:
		}
	}
}
