package applybench

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sluice/internal/backend/nftables/calibration"
	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/prove/reference"
	"sluice/internal/system/host"
)

const small = `version: 1
sets:
  visitors: {countries: [MT, SM, LI]}
input:
  default: drop
  rules:
    - allow [http, https] from visitors
    - allow ssh limit 6/30s per source
    - allow udp/53 from 203.0.113.0/24
`

func smallWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(small), 0o600); err != nil {
		t.Fatal(err)
	}
	local := []netip.Prefix{netip.PrefixFrom(hostV4, 24), netip.PrefixFrom(hostV6, 64)}
	facts := host.Facts{Interfaces: []host.Interface{{Name: "eth0", Up: true, Addresses: local}}, Local: []netip.Prefix{netip.PrefixFrom(hostV4, 32), netip.PrefixFrom(hostV6, 128)}}
	w, err := newWorld(Options{Policy: file, StateDir: filepath.Join(dir, "state"), Seed: 1}, dir, facts)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// What is applied is laid out as it would be here, with country data or without.
func TestPutHasCalibration(t *testing.T) {
	const want = "figures of this machine"
	dir, here, there := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.WriteFile(calibration.File(here), []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(Options{StateDir: here}, dir, host.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*state{{}, {data: []byte("countries")}} {
		if err := w.put(s, there); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(calibration.File(there)); err != nil || string(got) != want {
			t.Errorf("calibration %q, %v, want %q", got, err, want)
		}
	}
}

// A hundredth of the set's ranges changes, one half of it goes, and what comes was a
// country's outside.
func TestShifted(t *testing.T) {
	w := smallWorld(t)
	old, err := w.geo.Countries("MT", "SM", "LI")
	if err != nil {
		t.Fatal(err)
	}
	data, err := w.shifted(old, 1)
	if err != nil {
		t.Fatal(err)
	}
	again, err := w.shifted(old, 1)
	if err != nil || string(again) != string(data) {
		t.Errorf("the same round draws the same: %v", err)
	}
	db, err := geo.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	now, err := db.Countries("MT", "SM", "LI")
	if err != nil {
		t.Fatal(err)
	}
	all, err := w.geo.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []struct {
		name string
		of   func(addrset.Set) addrset.Set
	}{{"IPv4", addrset.Set.Only4}, {"IPv6", addrset.Set.Only6}} {
		goes, comes, ranges := f.of(old.Difference(now)).Ranges(), f.of(now.Difference(old)), len(f.of(old).Ranges())
		if want := (ranges + 199) / 200; len(goes) != want {
			t.Errorf("%s: %d of %d ranges go, want %d", f.name, len(goes), ranges, want)
		}
		if comes.IsEmpty() || !comes.Difference(all).IsEmpty() {
			t.Errorf("%s: what comes is empty, or was no country's", f.name)
		}
	}
	if moved, err := db.All(); err != nil || !moved.Difference(all).Union(all.Difference(moved)).IsEmpty() {
		t.Errorf("addresses have come or gone: %v", err)
	}
	if _, err := w.shifted(addrset.Set{}, 1); err == nil {
		t.Error("a policy without countries has nothing to change")
	}
}

// Every flow is what its class says, under every state, and none is of the rule that
// counts.
func TestDrawFlows(t *testing.T) {
	w := smallWorld(t)
	before, err := w.make(t.Context(), elements, nil)
	if err != nil {
		t.Fatal(err)
	}
	after, err := w.make(t.Context(), elements+1, nil)
	if err != nil {
		t.Fatal(err)
	}
	flows := drawFlows([]*state{before, after}, "eth0", 1)
	have := map[string]int{}
	for _, f := range flows {
		have[fmt.Sprintf("%s, IPv%d", f.class, f.family)]++
		p := packet.Packet{
			In: "eth0", Source: f.from.Addr(), Destination: f.to.Addr(), Protocol: f.protocol, SourcePort: f.from.Port(), Port: f.to.Port(),
			Flags: packet.SYN, State: packet.New, Owner: -1, HopLimit: 64, DestinationLocal: packet.Yes, SourceLocal: packet.No,
		}
		for _, s := range []*state{before, after} {
			if got := reference.Judge(s.resolved, p, policy.Input).Action == policy.Allow; got != (f.class == allowed) {
				t.Errorf("%s flow from %s to %s: a new one is allowed: %v", f.class, f.from, f.to, got)
			}
		}
		if f.class != refused && f.protocol == packet.TCP && f.to.Port() == 22 { // a ban comes before the limit
			t.Errorf("a flow to a service with a limit: %s", f.to)
		}
	}
	for c := range classes {
		for _, family := range []int{4, 6} {
			if have[fmt.Sprintf("%s, IPv%d", c, family)] == 0 {
				t.Errorf("no %s flow of IPv%d: %v", c, family, have)
			}
		}
	}
}

// TestFloodSeesWhatIsWrong has rules gone for a moment, and everything dropped for a
// moment: the counts have to show both, and nothing while nothing is done.
func TestFloodSeesWhatIsWrong(t *testing.T) {
	net := testnet.New(t)
	testnet.Require(t, testnet.Nftables)
	w := smallWorld(t)
	s, err := w.make(t.Context(), elements, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLab(net, "flood", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	flows := drawFlows([]*state{s}, "eth0", 1)
	load := func() error { _, err := l.host.RunInput(s.text, "nft", "-f", "-"); return err }
	if err := load(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name         string
		do           func() error
		lost, passed bool
		mayLose      bool // sets and rules that come in one transaction lose some packets, or none
	}{
		{"nothing is done", func() error { time.Sleep(lead); return nil }, false, false, false},
		{"rules are gone for a moment", func() error {
			if err := l.empty(); err != nil {
				return err
			}
			time.Sleep(lead)
			return load()
		}, false, true, true},
		{"everything is dropped for a moment", func() error {
			if _, err := l.host.RunInput("table inet shut { chain c { type filter hook input priority 100; policy drop; }; }\n", "nft", "-f", "-"); err != nil {
				return err
			}
			time.Sleep(lead)
			_, err := l.host.Run("nft", "delete", "table", "inet", "shut")
			return err
		}, true, false, false},
	} {
		c, err := l.during(flows, tc.do)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if c.Lost > 0 != tc.lost && !tc.mayLose || c.Passed > 0 != tc.passed || c.Sent == 0 {
			t.Errorf("%s: got %+v", tc.name, c)
		}
	}
}

// The careful steps and the one element lose nothing, and leave what they should.
func TestCareful(t *testing.T) {
	net := testnet.New(t)
	testnet.Require(t, testnet.Nftables)
	w := smallWorld(t)
	before, err := w.make(t.Context(), elements, nil)
	if err != nil {
		t.Fatal(err)
	}
	after, err := w.make(t.Context(), elements+1, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLab(net, "careful", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	flows := drawFlows([]*state{before, after}, "eth0", 1)
	n := &careful{lab: l}
	for i, c := range []change{{to: base}, {from: base, to: base}, {from: base, to: oneMore}, {from: oneMore, to: base}} {
		to := before
		if c.to == oneMore {
			to = after
		}
		if err := n.prepare(t.Context(), c, nil, to); err != nil {
			t.Fatal(err)
		}
		work := &work{lab: l}
		if i == 0 {
			if err := n.make(t.Context(), work); err != nil {
				t.Fatal(err)
			}
			continue
		}
		counted, err := l.during(flows, func() error { return n.make(t.Context(), work) })
		if err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
		if counted.Lost > 0 || counted.Passed > 0 {
			t.Errorf("change %d: %+v", i, counted)
		}
		last := element(elements).String()
		listing, err := l.host.Run("nft", "list", "ruleset")
		if err != nil {
			t.Fatal(err)
		}
		if got := containsWord(listing, last); got != (c.to == oneMore) {
			t.Errorf("change %d: the list has %s: %v", i, last, got)
		}
	}
}

func containsWord(text, word string) bool {
	r := ruleset{{objects: []object{{kind: "set", text: text}}}}
	_, _, found := r.holder(netip.MustParseAddr(word))
	return found
}
