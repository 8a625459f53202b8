package testnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Flood calls what sends a packet in turn until the returned function is called, which
// says how often each has sent: a burst of them at every beat, one burst right behind
// the other where the beat is 0. One that fails ends it. It has begun when Flood returns.
func Flood(burst int, beat time.Duration, send ...func() error) (stop func() (sent []uint64, err error)) {
	sent := make([]uint64, len(send))
	end, begun, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var failed error
	go func() {
		defer close(done)
		begin := sync.OnceFunc(func() { close(begun) })
		defer begin()
		await := func() {}
		if beat > 0 {
			ticker := time.NewTicker(beat)
			defer ticker.Stop()
			await = func() { <-ticker.C }
		}
		for i := 0; len(send) > 0; {
			for range burst {
				if failed = send[i](); failed != nil {
					return
				}
				sent[i]++
				i = (i + 1) % len(send)
				begin()
			}
			select {
			case <-end:
				return
			default:
				await()
			}
		}
	}()
	<-begun
	return func() ([]uint64, error) {
		close(end)
		<-done
		return sent, failed
	}
}

// Flood sends one packet over and over, as package testnet's Flood does.
func (p *Port) Flood(packet []byte) (stop func() (sent uint64, err error)) {
	all := Flood(64, 0, func() error { return p.Send(packet) })
	return func() (uint64, error) {
		sent, err := all()
		return sent[0], err
	}
}

// Counters are the packets that each counter object of a table ("inet watch") has
// counted. Packets under way may be in one counter and not yet in the next: who
// compares them stops what sends first.
func (s *Namespace) Counters(table string) (map[string]uint64, error) {
	text, err := s.Run("nft", append([]string{"-j", "list", "counters", "table"}, strings.Fields(table)...)...)
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
		return nil, fmt.Errorf("read the counters of %s: %w", table, err)
	}
	out := map[string]uint64{}
	for _, o := range listing.Nftables {
		if o.Counter != nil {
			out[o.Counter.Name] = o.Counter.Packets
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the table %s has no counters: %s", table, text)
	}
	return out, nil
}

// Overflowed is how many packets this machine has dropped in front of its stack, where
// the queue is as long as net.core.netdev_max_backlog (the second field of each line of
// /proc/net/softnet_stat).
func Overflowed() (sum uint64, err error) {
	text, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			return 0, errors.New("/proc/net/softnet_stat: no two fields in " + line)
		}
		n, err := strconv.ParseUint(fields[1], 16, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
