package controller

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/testseed"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
)

// BenchmarkGuestLabel is a fleet of 200 hosts with 20,000 guests in 200 sets, each host's parts
// naming 20 of them, of which a guest gets other labels: until all hosts concerned have said
// that it is proved. These hosts prove at once; what a host takes, the lab measures.
func BenchmarkGuestLabel(b *testing.B) {
	const hosts, sets, guests, classes = 200, 200, 20_000, 10
	f := newFleet(b, "example.net")
	f.text += "sets:\n"
	for i := range sets {
		f.text += fmt.Sprintf("  s%d: {guests: app=a%d, within: [10.0.0.0/8]}\n", i, i)
	}
	address := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	guest := func(i, app int) store.Guest {
		return store.Guest{
			ID: fmt.Sprint("vm-", i), Placement: store.Placement{Host: fmt.Sprint("hv-", i%hosts), Interface: fmt.Sprint("tap", i)},
			Addresses: []netip.Addr{address(i)}, Labels: map[string]string{"app": fmt.Sprint("a", app)},
		}
	}
	var all []*listener
	for i := range hosts {
		all = append(all, f.listens(fmt.Sprint("hv-", i), map[string]string{"class": fmt.Sprint("c", i%classes)}))
	}
	for i := range guests {
		_, err := f.controller.Store.PutGuest(b.Context(), "bench", guest(i, i%sets))
		ok(b, err)
	}
	parts := map[string]string{"": "guests: {enforce: forward}\nforward: {default: drop}\n"}
	for c := range classes {
		var rules []string
		for i := range sets / classes {
			rules = append(rules, fmt.Sprintf("allow https from s%d to guests", c*sets/classes+i))
		}
		parts[fmt.Sprint("class=c", c)] = "forward: {rules: [" + strings.Join(rules, ", ") + "]}\n"
	}
	f.given(parts)
	for proved := 0; proved < hosts; proved = must(f.client.Hosts(b.Context(), "")).Proved {
		time.Sleep(200 * time.Millisecond)
		for _, l := range all {
			if err := l.cut(); err != nil {
				b.Fatal(l.host, err)
			}
		}
	}
	random := rand.New(rand.NewPCG(testseed.Of(b), 0))
	var messages, concerned int
	before := 0
	for _, l := range all {
		before += l.heard()
	}
	for b.Loop() {
		i := random.IntN(guests)
		g := guest(i, random.IntN(sets))
		_, err := f.client.PutGuest(b.Context(), g.ID, api.NewGuest{Host: g.Host, Interface: g.Interface, Addresses: g.Addresses, Labels: g.Labels})
		ok(b, err)
		for {
			now := must(f.client.Guest(b.Context(), g.ID))
			if now.Proved {
				concerned += now.Concerned
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
	for _, l := range all {
		messages += l.heard()
	}
	b.ReportMetric(float64(messages-before)/float64(b.N), "messages/op")
	b.ReportMetric(float64(concerned)/float64(b.N), "hosts/op")
}
