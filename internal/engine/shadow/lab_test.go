package shadow_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/engine/shadow"
	"sluice/internal/lab/testnet"
	"sluice/internal/program"
	"sluice/internal/program/optimize"
	"sluice/internal/system/host"
	"sluice/internal/system/kernel/conntrack"
)

var capabilities = sync.OnceValue(func() backend.Capabilities { return nftables.New().Capabilities(context.Background()) })

// lab is a host between a client and a machine behind it.
type lab struct {
	*testing.T
	client, host, inside *testnet.Namespace
	out, in              *testnet.Port       // of the client, of the machine inside
	taken                []*testnet.Listener // of TCP and UDP, in both families
	through              *testnet.Capture
}

func newLab(t *testing.T) *lab {
	net := testnet.New(t)
	l := &lab{T: t, client: net.Namespace("client"), host: net.Namespace("host"), inside: net.Namespace("inside")}
	l.out, _ = net.Join(
		testnet.End{In: l.client, Device: "eth0", Addresses: []string{"198.51.100.2/24", "2001:db8:1::2/64"}},
		testnet.End{In: l.host, Device: "eth0", Addresses: []string{"198.51.100.1/24", "2001:db8:1::1/64"}})
	_, l.in = net.Join(
		testnet.End{In: l.host, Device: "eth1", Addresses: []string{"10.20.0.1/24", "2001:db8:20::1/64"}},
		testnet.End{In: l.inside, Device: "eth0", Addresses: []string{"10.20.0.5/24", "2001:db8:20::5/64"}})
	l.host.Forward()
	l.host.Route("0.0.0.0/0", "198.51.100.2")
	l.host.Route("::/0", "2001:db8:1::2")
	// Nobody answers, so that what was sent is all that there is.
	for _, silent := range []*testnet.Namespace{l.client, l.inside} {
		silent.Nft(`table inet silent {
			chain c { type filter hook input priority -200; policy drop; icmpv6 type { 133, 134, 135, 136 } accept; }
		}`)
	}
	l.host.Nft(`table inet probe {
		counter came { }
		chain c { type filter hook prerouting priority -350; iifname "eth0" meta l4proto { tcp, udp } counter name came; }
	}`)
	for _, v6 := range []bool{false, true} {
		l.taken = append(l.taken, l.host.Delivered(6, v6), l.host.Delivered(17, v6))
	}
	l.through = l.in.Capture()
	return l
}

// do runs f in the host.
func (l *lab) do(f func() error) {
	l.Helper()
	if err := l.host.Do(f); err != nil {
		l.Fatal(err)
	}
}

// program compiles a policy for the host.
func (l *lab) program(text string) *program.Program {
	l.Helper()
	dir := l.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte("version: 1\n"+text), 0o600); err != nil {
		l.Fatal(err)
	}
	var facts host.Facts
	l.do(func() (err error) { facts, err = host.Describe(context.Background(), host.OwnSession()); return err })
	p, _ := compiled(l.T, dir, facts)
	return p
}

// shadowed loads the policy's shadow.
func (l *lab) shadowed(text string) (*shadow.Running, *shadow.Legend) {
	l.Helper()
	p, legend := counting(l.T, l.program(text))
	if err := optimize.Run(p, optimize.Options{Check: true, Without: []string{"base-chains", "terminal"}}); err != nil {
		l.Fatal(err)
	}
	var running *shadow.Running
	l.do(func() error {
		b := nftables.Of(shadow.Owner)
		artifact, err := b.Lower(p, capabilities())
		if err != nil {
			return err
		}
		running, err = shadow.Start(context.Background(), b, artifact, legend, time.Minute, func(int, int, string) {})
		return err
	})
	l.Cleanup(func() { _ = running.Close() })
	return running, legend
}

func (l *lab) report(r *shadow.Running, legend *shadow.Legend) (*shadow.Report, *shadow.Counts) {
	l.Helper()
	var counts *shadow.Counts
	l.do(func() (err error) { counts, err = r.Read(context.Background()); return err })
	return legend.Report(counts, shadow.Names{Service: func(protocol, port int) (string, string) { return fmt.Sprintf("%d/%d", protocol, port), "" }}), counts
}

// enforced applies the policy.
func (l *lab) enforced(text string) {
	l.Helper()
	p := l.program(text)
	if err := optimize.Run(p, optimize.Options{Check: true}); err != nil {
		l.Fatal(err)
	}
	l.do(func() error {
		b := nftables.New()
		artifact, err := b.Lower(p, capabilities())
		if err != nil {
			return err
		}
		steps, err := b.Steps(artifact, nil)
		if err != nil {
			return err
		}
		for _, step := range steps {
			if err := step.Take(context.Background()); err != nil {
				return fmt.Errorf("%s: %w", step.Name, err)
			}
		}
		return nil
	})
}

// send sends packets from the client and waits until the host has taken them in.
func (l *lab) send(packets [][]byte) {
	l.Helper()
	before := l.came()
	for part := range slices.Chunk(packets, 50) {
		if err := l.out.Send(part...); err != nil {
			l.Fatal(err)
		}
	}
	for range 12000 {
		if l.came() == before+len(packets) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	l.Fatalf("%d of %d packets came", l.came()-before, len(packets))
}

func (l *lab) came() (n int) {
	out := l.host.MustRun("nft", "-j", "list", "counter", "inet", "probe", "came")
	if _, err := fmt.Sscanf(out[strings.Index(out, `"packets": `):], `"packets": %d`, &n); err != nil {
		l.Fatal(err)
	}
	return n
}

// delivered is what the host took in and what went through it, as texts.
func (l *lab) delivered() (input, forward []string) {
	for _, listener := range l.taken {
		for _, s := range listener.Seen() {
			input = append(input, fmt.Sprintf("%s %x", s.Source, s.Raw))
		}
	}
	for _, s := range l.through.Seen() {
		if !s.Outgoing && (s.Protocol == 6 || s.Protocol == 17) {
			forward = append(forward, fmt.Sprintf("%x", s.Raw))
		}
	}
	slices.Sort(input)
	slices.Sort(forward)
	return input, forward
}

// settled is delivered, once it has stopped growing.
func (l *lab) settled() (input, forward []string) {
	for still := 0; still < 10; {
		i, f := l.delivered()
		if len(i) == len(input) && len(f) == len(forward) {
			still++
		} else {
			still = 0
		}
		input, forward = i, f
		time.Sleep(20 * time.Millisecond)
	}
	return input, forward
}

// tracked is the connection table of the host.
func (l *lab) tracked() (out []string) {
	l.Helper()
	l.do(func() error {
		entries, err := conntrack.List()
		for _, e := range entries {
			if e.Protocol == 6 || e.Protocol == 17 {
				out = append(out, fmt.Sprint(e.Protocol, e.Original, e.Reply, e.Mark, e.State))
			}
		}
		return err
	})
	slices.Sort(out)
	return out
}
