package fleetbench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	agent "sluice/internal/agent/fleet"
	"sluice/internal/fleet/api"
)

// What bans of a fleet are held to.
const (
	mostOneBan  = 1.5  // s, from the request until 99 % of the hosts have it proved
	mostFlood   = 3.0  // s, of 99 % of bans × hosts
	mostBanning = 50.0 // % of a core, of the controller
	floodRate   = 100  // bans a second
)

// Lived is how long bans of one kind took from the request until simulated hosts had them in
// force, s.
type Lived struct {
	Bans int64   `json:"bans"` // times hosts
	Half float64 `json:"half"`
	Most float64 `json:"most"` // 99 %
	All  float64 `json:"all"`
}

// lived keeps the times of bans by the first word of their reason; the second is when each was
// asked for, in microseconds since 1970.
type lived struct {
	mutex sync.Mutex
	of    map[string]*hdrhistogram.Histogram
}

func (l *lived) add(items []agent.LivingItem, now time.Time) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, item := range items {
		kind, text, _ := strings.Cut(item.Reason, " ")
		at, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			continue
		}
		h := l.of[kind]
		if h == nil {
			h = hdrhistogram.New(1, time.Hour.Microseconds(), 3)
			l.of[kind] = h
		}
		_ = h.RecordValue(now.UnixMicro() - at) // an hour is not reached
	}
}

func (l *lived) all() map[string]Lived {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	out := map[string]Lived{}
	for kind, h := range l.of {
		s := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1e6 }
		out[kind] = Lived{h.TotalCount(), s(50), s(99), s(100)}
	}
	return out
}

// banned asks for a ban of an address that no ban was of before.
func (f *fleet) banned(kind, hosts string) (begun time.Time, seq int64, err error) {
	n := f.bans.Add(1)
	begun = time.Now()
	held, err := f.client.Ban(f, api.NewHoldings{Hosts: hosts, Entries: []api.NewHolding{{
		What: fmt.Sprintf("203.%d.%d.%d", n>>16&0x7f, n>>8&0xff, n&0xff), ForSeconds: 1800, Reason: fmt.Sprint(kind, " ", begun.UnixMicro()),
	}}})
	if err != nil {
		return begun, 0, err
	}
	if len(held.Refused) > 0 {
		return begun, 0, fmt.Errorf("a ban is refused: %+v", held.Refused[0])
	}
	return begun, held.Seq, nil
}

// ban bans one address, and returns how long each host took until it was proved there, sorted.
func (f *fleet) ban(hosts string, n int) (took []float64, err error) {
	begun, seq, err := f.banned("one", hosts)
	if err != nil {
		return nil, err
	}
	time.Sleep(500 * time.Millisecond) // nobody asks the controller meanwhile
	err = f.until(patience(n), fmt.Sprintf("ban %d is proved on %d hosts", seq, n), func() (bool, error) {
		is, err := f.client.Living(f, seq, hosts)
		if err != nil {
			return false, err
		}
		took = nil
		for _, h := range is.Hosts {
			if h.State == api.LiveProved {
				took = append(took, h.Proved.Sub(begun).Seconds())
			}
		}
		return len(took) >= n, nil
	})
	slices.Sort(took)
	return took, err
}

// liveTimes are what hosts with a kernel take for a ban, one after the other.
func (f *fleet) liveTimes() error {
	for i, h := range f.hosts {
		took, err := f.ban(fmt.Sprintf("host=host-%d", i), 1)
		if err != nil {
			return err
		}
		h.live = time.Duration(took[0] * float64(time.Second))
	}
	return nil
}

// flooded is what many bans took.
type flooded struct {
	Lived
	spent
	took time.Duration // while spent was
}

// flood has a program ban addresses one by one for a while, a request each.
func (f *fleet) flood(simulated int, lasts time.Duration) (out flooded, err error) {
	before, err := f.spent()
	if err != nil {
		return out, err
	}
	var asking sync.WaitGroup
	var failed atomic.Pointer[error]
	begun, asked := time.Now(), 0
	for every := time.NewTicker(time.Second / floodRate); time.Since(begun) < lasts; asked++ {
		<-every.C
		asking.Go(func() {
			if _, _, err := f.banned("many", ""); err != nil {
				failed.Store(&err)
			}
		})
	}
	asking.Wait()
	after, err := f.spent()
	if err != nil {
		return out, err
	}
	out.spent, out.took = after.since(before), time.Since(begun)
	if err := failed.Load(); err != nil {
		return out, *err
	}
	want := int64(asked * simulated)
	err = f.until(patience(simulated), fmt.Sprintf("%d bans are in force on %d hosts", asked, simulated), func() (bool, error) {
		out.Lived = f.simulated.lived("many")
		return out.Bans >= want, f.simulated.failed()
	})
	return out, err
}
