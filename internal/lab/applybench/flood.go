package applybench

import (
	"errors"
	"time"

	"sluice/internal/lab/testnet"
)

// counts is what happened to the packets of a flood.
type counts struct {
	Sent   uint64
	Lost   uint64 // of those that old and new state allow
	Passed uint64 // of those that neither allows
}

// A flood is a burst each millisecond, which leaves the processors to the change.
const (
	burst = 32
	beat  = time.Millisecond
	// lead is how long packets come before the change begins and after it has
	// ended.
	lead = 100 * time.Millisecond
)

// during makes a change under a flood and counts. What the queue in front of the
// stack drops (net.core.netdev_max_backlog) no rule is to blame for.
func (l *lab) during(flows []flow, do func() error) (c counts, err error) {
	if err := l.connect(flows); err != nil {
		return c, err
	}
	start, err := l.host.Counters(watchName)
	if err != nil {
		return c, err
	}
	queue, err := testnet.Overflowed()
	if err != nil {
		return c, err
	}
	stop := l.send(flows)
	time.Sleep(lead)
	doErr := do()
	time.Sleep(lead)
	sent, err := stop()
	time.Sleep(settle) // for what is under way
	end, readErr := l.host.Counters(watchName)
	queueNow, queueErr := testnet.Overflowed()
	if err := errors.Join(doErr, err, readErr, queueErr); err != nil {
		return c, err
	}
	spare := queueNow - queue
	for k := range classes {
		c.Sent += sent[k]
		arrived, passed := end[counter(before, k)]-start[counter(before, k)], end[counter(behind, k)]-start[counter(behind, k)]
		if k == refused {
			c.Passed += passed
			continue
		}
		missing := min(sent[k]-arrived, spare)
		spare -= missing
		c.Lost += sent[k] - missing - passed
	}
	return c, nil
}

// send begins to send and returns what ends it.
func (l *lab) send(flows []flow) (stop func() ([classes]uint64, error)) {
	shots := make([]func() error, len(flows))
	for i, f := range flows {
		packet := f.packet()
		shots[i] = func() error { return l.outside.Send(packet) }
	}
	end := testnet.Flood(burst, beat, shots...)
	return func() (by [classes]uint64, err error) {
		sent, err := end()
		for i, f := range flows {
			by[f.class] += sent[i]
		}
		return by, err
	}
}
