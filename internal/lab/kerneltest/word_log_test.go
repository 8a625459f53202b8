package kerneltest

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
	"sluice/internal/program"
	"sluice/internal/system/kernel/nflog"
)

// logPolicy logs what its defaults refuse, and one line.
const logPolicy = `
log: netlink
input:
  default: drop
  rules: [drop udp/53 log "dns"]
forward:
  default: reject
`

// logReader keeps what a host logs.
type logReader struct {
	mutex sync.Mutex
	seen  []nflog.Packet
	stop  func()
}

// logs begins to read what a host logs, until the test ends.
func logs(t *testing.T, host *testnet.Namespace) *logReader {
	t.Helper()
	r := &logReader{}
	ctx, stop := context.WithCancel(context.Background())
	listens, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- host.Do(func() error {
			return nflog.Read(ctx, program.LogGroup, program.LogLength, func() { close(listens) }, func(p nflog.Packet) {
				r.mutex.Lock()
				defer r.mutex.Unlock()
				r.seen = append(r.seen, p)
			})
		})
	}()
	r.stop = sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	select {
	case <-listens:
	case err := <-ended:
		t.Fatal(err)
	}
	return r
}

// of are the packets from an address whose prefix has a text.
func (r *logReader) of(source netip.Addr, text string) (out []nflog.Packet) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, p := range r.seen {
		at, size := 12, 4
		if source.Is6() {
			at, size = 8, 16
		}
		from, ok := netip.AddrFromSlice(p.Payload[at : at+size])
		if ok && from == source && strings.Contains(p.Prefix, text) && (p.Payload[0]>>4 == 6) == source.Is6() {
			out = append(out, p)
		}
	}
	return out
}

// wants waits until such a packet is logged.
func (r *logReader) wants(t *testing.T, source netip.Addr, text string) nflog.Packet {
	t.Helper()
	for until := time.Now().Add(enough); ; time.Sleep(10 * time.Millisecond) {
		if p := r.of(source, text); len(p) > 0 {
			return p[0]
		}
		if time.Now().After(until) {
			t.Fatalf("%s is not logged with %q", source, text)
		}
	}
}

// numbered is one of many addresses.
func numbered(n int, v6 bool) netip.Addr {
	if v6 {
		a := netip.MustParseAddr("2001:db8:bad::1").As16()
		binary.BigEndian.PutUint16(a[6:], uint16(n)) //nolint:gosec // fewer than that, each a /64
		return netip.AddrFrom16(a)
	}
	a := netip.MustParseAddr("192.0.0.0").As4()
	binary.BigEndian.PutUint16(a[2:], uint16(512+n)) //nolint:gosec // as above
	return netip.AddrFrom4(a)
}

// TestLogHidesNobody: several that flood a line at once have their part of its log, and take
// nothing of what somebody else has there, nor of another line's; each packet is counted.
func TestLogHidesNobody(t *testing.T) {
	c := newTown(t)
	apply(t, c.host, logPolicy)
	r := logs(t, c.host)
	const sources, each = 4, 300 // together they take less than the line has at once
	for _, v6 := range []bool{false, true} {
		for range each {
			for n := range sources {
				mustSend(t, c.street, testnet.UDP(at(numbered(n, v6), 5000), at(place("host", v6), 9)))
			}
		}
		mustSend(t, c.street, testnet.UDP(at(place("stranger", v6), 5000), at(place("host", v6), 9)))
		mustSend(t, c.street, testnet.UDP(at(numbered(0, v6), 5000), at(place("host", v6), 53)))
		mustSend(t, c.street, testnet.UDP(at(place("stranger", v6), 5000), at(place("inside", v6), 9)))
		p := r.wants(t, place("stranger", v6), "input_default")
		if p.In != "wan0" || p.Out != "" || p.Hook != 1 {
			t.Errorf("IPv6 %t: %+v", v6, p)
		}
		if p := r.wants(t, place("stranger", v6), "forward_default"); p.In != "wan0" || p.Out != "lan0" || p.Hook != 2 {
			t.Errorf("IPv6 %t: %+v", v6, p)
		}
		for n := range sources {
			logged := len(r.of(numbered(n, v6), "input_default"))
			if logged < 10 || logged > each/2 {
				t.Errorf("IPv6 %t: of %d packets of %s %d are logged", v6, each, numbered(n, v6), logged)
			}
		}
		r.wants(t, numbered(0, v6), " dns")
	}
	if counted, want := counterOf(t, c.host, "inet sluice", "input_default"), uint64(2*(sources*each+1)); counted != want {
		t.Errorf("%d packets are counted, and not %d", counted, want)
	}
}

// TestLogIsBounded: of ever new sources, which anybody can forge, a line logs what it has.
func TestLogIsBounded(t *testing.T) {
	c := newTown(t)
	apply(t, c.host, logPolicy)
	r := logs(t, c.host)
	const sources = 10_000
	begun := time.Now()
	for n := range sources {
		mustSend(t, c.street, testnet.UDP(at(numbered(n, false), 5000), at(place("host", false), 9)))
	}
	for until := time.Now().Add(enough); counterOf(t, c.host, "inet sluice", "input_default") < sources && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
	most := 100 + 50*int(time.Since(begun)/time.Second+1)
	r.stop()
	if n := len(r.seen); n < 100 || n > most || most >= sources {
		t.Errorf("%d of %d are logged, and %d may be", n, sources, most)
	}
}

// TestLogWithAFullTable: those whose source finds no place share one part of the log.
func TestLogWithAFullTable(t *testing.T) {
	c := newTown(t)
	apply(t, c.host, logPolicy)
	r := logs(t, c.host)
	set := regexp.MustCompile(`set (log\.input_default_v4_\w+) `).FindStringSubmatch(c.host.MustRun("nft", "list", "sets"))
	if set == nil {
		t.Fatal("there is no table of sources")
	}
	var add strings.Builder
	for n := range 4096 {
		fmt.Fprintf(&add, "add element inet sluice %s { 10.%d.%d.1 limit rate 30/minute burst 10 packets }\n", set[1], n>>8, n&255)
	}
	c.host.Nft(add.String())
	mustSend(t, c.street, testnet.UDP(at(place("stranger", false), 5000), at(place("host", false), 9)))
	r.wants(t, place("stranger", false), "input_default")
	if n := counterOf(t, c.host, "inet sluice", "log-input_default-full"); n != 1 {
		t.Errorf("%d packets found the table full", n)
	}
}
