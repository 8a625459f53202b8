package applybench

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// counts is what became of the packets of a flood.
type counts struct {
	Sent   uint64
	Lost   uint64 // of those that old and new state allow
	Passed uint64 // of those that neither allows
}

// flood sends flows in turn until it is stopped: a burst each millisecond, which
// leaves the processors to the change.
const (
	burst = 32
	pause = time.Millisecond
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
	start, err := l.read()
	if err != nil {
		return c, err
	}
	queue, err := overflowed()
	if err != nil {
		return c, err
	}
	stop := l.send(flows)
	time.Sleep(lead)
	doErr := do()
	time.Sleep(lead)
	sent, err := stop()
	time.Sleep(settle) // for what is under way
	end, readErr := l.read()
	queueNow, queueErr := overflowed()
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
	type shot struct {
		class  class
		packet []byte
	}
	shots := make([]shot, len(flows))
	for i, f := range flows {
		shots[i] = shot{f.class, f.packet()}
	}
	var (
		sent   [classes]uint64
		failed error
	)
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for i := 0; len(shots) > 0; {
			for range burst {
				s := shots[i%len(shots)]
				if failed = l.outside.Send(s.packet); failed != nil {
					return
				}
				sent[s.class]++
				i++
			}
			select {
			case <-end:
				return
			case <-tick.C:
			}
		}
	}()
	return func() ([classes]uint64, error) {
		close(end)
		<-done
		return sent, failed
	}
}

// read reads the watch.
func (l *lab) read() (map[string]uint64, error) {
	text, err := l.host.Run("nft", append([]string{"-j", "list", "counters", "table"}, strings.Fields(watchName)...)...)
	if err != nil {
		return nil, err
	}
	var listing struct {
		Nftables []struct {
			Counter *struct {
				Name    string
				Packets uint64
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &listing); err != nil {
		return nil, fmt.Errorf("read the watch: %w", err)
	}
	out := map[string]uint64{}
	for _, o := range listing.Nftables {
		if o.Counter != nil {
			out[o.Counter.Name] = o.Counter.Packets
		}
	}
	if len(out) != 2*int(classes) {
		return nil, fmt.Errorf("the watch has %d counters, not %d", len(out), 2*classes)
	}
	return out, nil
}

// overflowed is how many packets this machine has dropped in front of its stack (the
// second field of each line of /proc/net/softnet_stat).
func overflowed() (sum uint64, err error) {
	text, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			return 0, fmt.Errorf("/proc/net/softnet_stat: no two fields in %q", line)
		}
		n, err := strconv.ParseUint(fields[1], 16, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
