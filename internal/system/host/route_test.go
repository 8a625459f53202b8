package host

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/testseed"
	"sluice/internal/lab/testnet"
)

// Where routing leads a packet by the rules and routes of the facts, through JSON and
// back, is where the kernel says that it goes.
func TestRoutesOfFactsAreTheKernels(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	seed := testseed.Of(t)
	asked, several, nowhere, here := 0, 0, 0, 0
	for round := range 4 {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		net := testnet.New(t)
		ns := net.Namespace("routed")
		ns.Forward()
		for i := range 3 {
			ns.MustRun("ip", "link", "add", fmt.Sprintf("up%d", i), "type", "veth", "peer", "name", fmt.Sprintf("far%d", i))
			ns.MustRun("ip", "link", "set", fmt.Sprintf("far%d", i), "up")
			ns.MustRun("ip", "link", "set", fmt.Sprintf("up%d", i), "up")
			ns.MustRun("ip", "address", "add", fmt.Sprintf("10.%d.0.1/16", i), "dev", fmt.Sprintf("up%d", i))
			ns.Address(fmt.Sprintf("up%d", i), fmt.Sprintf("2001:db8:%d::1/48", i))
			ns.Sysctl(fmt.Sprintf("net.ipv4.conf.up%d.rp_filter", i), fmt.Sprint(r.IntN(3)))
		}
		ns.Sysctl("net.ipv4.conf.all.rp_filter", "0")
		var lines []string
		run := func(words ...string) {
			lines = append(lines, strings.Join(words, " "))
			_, _ = ns.Run("ip", words...) // one that is there already is refused
		}
		for range 25 {
			randomRoute(r, run)
		}
		for range 6 {
			randomRule(r, run)
		}
		err := ns.Do(func() error {
			facts, err := Describe(context.Background(), nil)
			if err != nil {
				return err
			}
			facts.ReadRouting()
			data, err := json.Marshal(facts)
			if err != nil {
				return err
			}
			var told Facts
			if err := json.Unmarshal(data, &told); err != nil {
				return err
			}
			if !reflect.DeepEqual(told, facts) {
				t.Errorf("the facts are others when they are read back:\n%+v\n%+v", facts, told)
			}
			for range 400 {
				trip := randomTrip(r)
				want, got := facts.Kernel(trip), told.Route(trip)
				asked++
				switch {
				case len(want.Out) > 1:
					several++
				case want.Leads == Nowhere:
					nowhere++
				case want.Leads == Here:
					here++
				}
				if f := reversePath(facts, trip.In); f != 0 && (len(want.Out) > 1 || strings.HasPrefix(got.Why, "a hash")) {
					continue // the kernel has looked back from the one next hop that its hash chose
				}
				if got.Leads != want.Leads || !slices.Equal(got.Out, want.Out) {
					t.Errorf("%+v: the facts say %+v, the kernel %+v\n%s", trip, got, want, strings.Join(lines, "\n"))
					return nil
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if several == 0 || nowhere == 0 || here == 0 {
		t.Errorf("of %d packets %d had several ways, %d none, and %d were for the host", asked, several, nowhere, here)
	}
}

func reversePath(f Facts, device string) int {
	i := slices.IndexFunc(f.Interfaces, func(i Interface) bool { return i.Name == device })
	if i < 0 {
		return 0
	}
	return f.Interfaces[i].ReversePath
}

func family(r *rand.Rand) (flag string, six bool) {
	if r.IntN(2) == 0 {
		return "-4", false
	}
	return "-6", true
}

// somewhere is an address of few, so that routes, rules and packets meet.
func somewhere(r *rand.Rand, six bool) netip.Addr {
	if six {
		return netip.MustParseAddr(fmt.Sprintf("2001:db8:%d:%d::%d", r.IntN(5), r.IntN(3), 1+r.IntN(3)))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.%d.%d.%d", r.IntN(5), r.IntN(3), 1+r.IntN(3)))
}

func prefixOf(r *rand.Rand, six bool) string {
	lengths := []int{0, 8, 16, 24, 32}
	if six {
		lengths = []int{0, 32, 48, 64, 128}
	}
	return netip.PrefixFrom(somewhere(r, six), lengths[r.IntN(5)]).Masked().String()
}

func randomRoute(r *rand.Rand, run func(...string)) {
	flag, six := family(r)
	hop := func() []string {
		i := r.IntN(3)
		via := fmt.Sprintf("10.%d.0.9", i)
		if six {
			via = fmt.Sprintf("2001:db8:%d::9", i)
		}
		return []string{"via", via, "dev", fmt.Sprintf("up%d", i)}
	}
	words := []string{flag, "route", "add"}
	kind := r.IntN(8)
	if kind == 0 {
		words = append(words, []string{"blackhole", "unreachable", "prohibit", "throw"}[r.IntN(4)])
	}
	words = append(words, prefixOf(r, six), "metric", fmt.Sprint(10+r.IntN(3)))
	if r.IntN(2) == 0 {
		words = append(words, "table", fmt.Sprint(100+r.IntN(3)))
	}
	switch kind {
	case 0:
	case 1, 2:
		words = append(append(words, "nexthop"), hop()...)
		words = append(append(words, "nexthop"), hop()...)
	default:
		words = append(words, hop()...)
	}
	run(words...)
}

func randomRule(r *rand.Rand, run func(...string)) {
	flag, six := family(r)
	words := []string{flag, "rule", "add", "priority", fmt.Sprint(100 + r.IntN(900))}
	if r.IntN(4) == 0 {
		words = append(words, "not")
	}
	for n := 1 + r.IntN(2); n > 0; n-- {
		switch r.IntN(6) {
		case 0:
			words = append(words, "from", prefixOf(r, six))
		case 1:
			words = append(words, "to", prefixOf(r, six))
		case 2:
			words = append(words, "iif", []string{"up0", "up1", "lo"}[r.IntN(3)])
		case 3:
			words = append(words, "fwmark", []string{"0x1", "0x2/0xf"}[r.IntN(2)])
		case 4:
			words = append(words, "ipproto", "tcp", "dport", "80-90")
		case 5:
			words = append(words, "ipproto", "udp", "sport", "4000")
		}
	}
	switch r.IntN(6) {
	case 0:
		words = append(words, []string{"unreachable", "prohibit", "blackhole"}[r.IntN(3)])
	case 1:
		words = append(words, "lookup", "main", "suppress_prefixlength", "0")
	default:
		words = append(words, "lookup", fmt.Sprint(100+r.IntN(3)))
	}
	run(words...)
}

func randomTrip(r *rand.Rand) Trip {
	_, six := family(r)
	t := Trip{Destination: somewhere(r, six), Mark: uint32(r.IntN(4)), User: -1, Protocol: []uint8{6, 17}[r.IntN(2)]}
	t.SourcePort, t.Port = []uint16{4000, 5000}[r.IntN(2)], []uint16{80, 443}[r.IntN(2)]
	if r.IntN(4) > 0 {
		t.In, t.Source = fmt.Sprintf("up%d", r.IntN(3)), somewhere(r, six)
	} else {
		t.User = int64(r.IntN(2)) * 1000
	}
	return t
}

// What older programs wrote holds no routes, and is still read; what cannot be known from
// it is said to be unknown.
func TestRouteOfFactsWithoutRoutes(t *testing.T) {
	var f Facts
	text := `{"known": true, "default-route": ["a", "b"], "interfaces": [{"name": "c", "index": 4, "up": true, "addresses": ["192.0.2.1/24", "2001:db8::1/64"]}]}`
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string]Way{
		"192.0.2.1": {Leads: Here, Out: []string{"lo"}}, "2001:db8::9": {Leads: Onward, Out: []string{"c"}},
		"198.51.100.1": {Leads: Onward, Out: []string{"a", "b"}}, "2001:db8:9::1": {Leads: Onward, Out: []string{"a", "b"}},
	} {
		got := f.Route(Trip{Destination: netip.MustParseAddr(to), User: -1})
		if got.Leads != want.Leads || !slices.Equal(got.Out, want.Out) || (len(got.Out) > 1) != (got.Why != "") {
			t.Errorf("%s: %+v, want %+v", to, got, want)
		}
	}
	f.DefaultRoute = nil
	if got := f.Route(Trip{Destination: netip.MustParseAddr("198.51.100.1"), User: -1}); got.Leads != Unknown || got.Why == "" {
		t.Errorf("without a default route: %+v", got)
	}
}
