package stress

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/internal/lab/testnet"
)

// traffic is all that goes through the host during a run.
type traffic struct {
	l        *lab
	start    reading
	backlog  uint64
	sender   *sender
	streams  *streams
	connects *connects
}

// startTraffic needs a policy in the kernel that lets the services work.
func (l *lab) startTraffic(flows []flow) (t *traffic, err error) {
	t = &traffic{l: l}
	if t.start, err = l.read(); err != nil {
		return nil, err
	}
	if t.backlog, err = testnet.Overflowed(); err != nil {
		return nil, err
	}
	if t.streams, err = l.openStreams(); err != nil {
		return nil, err
	}
	if t.sender, err = l.startSender(flows); err != nil {
		return nil, errors.Join(err, t.streams.close())
	}
	t.connects = l.startConnects()
	return t, nil
}

// settle is for what is under way to arrive.
const settle = 300 * time.Millisecond

// fate is what happened to the packets of a kind, or of a service.
type fate struct {
	Name   string `json:"name"`
	Sent   uint64 `json:"sent"`
	Passed uint64 `json:"passed"`
	// Lost are those that should have passed, Leaked those that passed though
	// they should not.
	Lost   uint64 `json:"lost"`
	Leaked uint64 `json:"leaked"`
}

// counts is what came of a run of traffic.
type counts struct {
	Flows    []fate   `json:"flows"`
	Services []fate   `json:"services"`
	Streams  int      `json:"streams"`
	Carried  uint64   `json:"stream-bytes"`
	Dead     []string `json:"dead-streams"`
	Connects uint64   `json:"connections"`
	Failed   []string `json:"failed-connections"`
	// Vanished were sent and never seen by the watch, which the queue in front of
	// the host's stack (net.core.netdev_max_backlog) accounts for, or not.
	Vanished uint64 `json:"vanished"`
	Overflow uint64 `json:"overflowed"`
}

// stop ends the traffic and counts.
func (t *traffic) stop(patience time.Duration) (*counts, error) {
	sent, err := t.sender.stop()
	c := &counts{Streams: len(t.streams.all)}
	c.Connects, c.Failed = t.connects.stop()
	c.Dead = t.streams.dead(patience)
	t.streams.rest()
	time.Sleep(settle)
	c.Carried = t.streams.carried()
	now, readErr := t.l.read()
	overflow, backlogErr := testnet.Overflowed()
	if err = errors.Join(err, readErr, backlogErr, t.streams.close()); err != nil {
		return nil, err
	}
	c.Overflow = overflow - t.backlog
	c.count(sent, now.since(t.start))
	return c, nil
}

func (c *counts) count(sent map[kind]uint64, seen reading) {
	for _, k := range slices.SortedFunc(maps.Keys(sent), compareKinds) {
		f := fate{Name: fmt.Sprintf("%s IPv%d, %s", k.hook, k.family, k.class), Sent: sent[k], Passed: seen[behind+k.name()]}
		arrived := seen[before+k.name()]
		switch k.class {
		case both:
			f.Lost = arrived - f.Passed
			c.Vanished += sent[k] - arrived
		case neither:
			f.Leaked = f.Passed
		}
		c.Flows = append(c.Flows, f)
	}
	for _, s := range services {
		for _, f := range families {
			for what, name := range map[string]string{"data": s.streamName(f), "opening": s.connectName(f)} {
				n := fate{Name: fmt.Sprintf("%s IPv%d, %s", s, f, what), Sent: seen[before+name], Passed: seen[behind+name]}
				n.Lost = n.Sent - n.Passed
				c.Services = append(c.Services, n)
			}
		}
	}
	slices.SortStableFunc(c.Services, func(a, b fate) int { return cmp.Compare(a.Name, b.Name) })
}

func compareKinds(a, b kind) int {
	return cmp.Or(cmp.Compare(a.hook, b.hook), cmp.Compare(a.family, b.family), cmp.Compare(a.class, b.class))
}

// sums over all kinds and services.
func (c *counts) lost() (sum uint64) {
	for _, f := range slices.Concat(c.Flows, c.Services) {
		sum += f.Lost
	}
	return sum
}

func (c *counts) leaked() (sum uint64) {
	for _, f := range c.Flows {
		sum += f.Leaked
	}
	return sum
}

// wrong is what must not be, in words; none: all is as it should be.
func (c *counts) wrong() (out []string) {
	for _, f := range slices.Concat(c.Flows, c.Services) {
		if f.Lost > 0 {
			out = append(out, fmt.Sprintf("%s: %d of %d packets were lost", f.Name, f.Lost, f.Sent))
		}
		if f.Leaked > 0 {
			out = append(out, fmt.Sprintf("%s: %d of %d packets passed", f.Name, f.Leaked, f.Sent))
		}
	}
	if c.Vanished > c.Overflow {
		out = append(out, fmt.Sprintf("%d packets were sent and never arrived", c.Vanished))
	}
	for _, d := range c.Dead {
		out = append(out, "dead stream: "+d)
	}
	for _, d := range c.Failed {
		out = append(out, "failed connection: "+d)
	}
	return out
}
