package nft_test

import (
	"context"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/nft"
)

// Counters and sets of one name in two families are told apart, and those of other tables
// are left out.
func TestCountersAndSets(t *testing.T) {
	s := host(t)
	err := in(t, s, func(ctx context.Context) error {
		return nft.Run(ctx, `add table inet t
add table ip t
add table inet other
add counter inet t a { packets 7 bytes 4294967296 }
add counter ip t a
add counter inet other b
add quota inet t q over 1 mbytes
add set inet t s { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 192.0.2.1-192.0.2.9 }; }
add set ip t s { type ipv4_addr; elements = { 10.0.0.1 }; }
add set inet other s { type ipv4_addr; }
`)
	})
	if err != nil {
		t.Fatal(err)
	}
	err = in(t, s, func(context.Context) error {
		var counters map[uint8]map[string]nft.Counter
		err := nft.Counters("t", func() { counters = map[uint8]map[string]nft.Counter{} }, func(family uint8, name string, c nft.Counter) {
			if counters[family] == nil {
				counters[family] = map[string]nft.Counter{}
			}
			counters[family][name] = c
		})
		if err != nil {
			return err
		}
		if want := (map[uint8]map[string]nft.Counter{unix.NFPROTO_INET: {"a": {Packets: 7, Bytes: 1 << 32}}, unix.NFPROTO_IPV4: {"a": {}}}); !reflect.DeepEqual(counters, want) {
			t.Errorf("counters: %v, want %v", counters, want)
		}
		sets, err := nft.Sets("t")
		want := map[uint8]map[string]int{unix.NFPROTO_INET: {"s": 2}, unix.NFPROTO_IPV4: {"s": 1}}
		unsaid := map[uint8]map[string]int{unix.NFPROTO_INET: {"s": -1}, unix.NFPROTO_IPV4: {"s": -1}} // before Linux 6.17
		if !reflect.DeepEqual(sets, want) && !reflect.DeepEqual(sets, unsaid) {
			t.Errorf("sets: %v, want %v", sets, want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
