package nftables

import (
	"fmt"
	"testing"

	"sluice/internal/addrset"
	"sluice/internal/program"
)

// TestPredictions: elements and kernel memory are within a quarter of what
// happens, whatever the layout.
func TestPredictions(t *testing.T) {
	host := kernelHost(t)
	account := newAccount(t)
	sets := large().Sets
	both := sets[len(sets)-1].Addresses
	only := map[int]addrset.Set{4: both.Only4(), 6: both.Only6()}
	check := func(name string, l *lowering) {
		t.Run(name, func(t *testing.T) {
			var bytes uint64
			for try := 0; ; try++ {
				bytes, _ = account.take(t, host.Namespace, steps(l.tree, &State{})...)
				predicted := costOf(l.tree).Memory
				near := predicted <= bytes+bytes/4 && predicted >= bytes-bytes/4
				if !near && !account.own() && try < 5 {
					// The whole machine is counted, and others use it too.
					host.Nft("delete table inet sluice")
					continue
				}
				if !near {
					t.Errorf("predicted %d bytes, it took %d", predicted, bytes)
				}
				break
			}
			// The kernel takes seconds to tell a large set of IPv6.
			got := 0
			if name[:4] == "IPv6" {
				for _, k := range l.tree.Sets {
					got += len(k.texts(nil))
				}
			} else {
				got = host.held(t)
			}
			if want := costOf(l.tree).Elements; got != want || want < 10_000 {
				t.Errorf("predicted %d elements, there are %d", want, got)
			}
			host.Nft("delete table inet sluice")
		})
	}
	for family, places := range map[int][]int{4: {0, 1, 3, 5, 8}, 6: {1, 3}} {
		for _, place := range places {
			l, err := lowerSearching(dropping(only[family]), everything, picking(place))
			if err != nil {
				t.Fatal(err)
			}
			check(fmt.Sprintf("IPv%d, %s", family, candidates[family][place].name), l)
		}
	}
	var single addrset.Builder
	for r := range both.Each() {
		single.AddRange(addrset.Range{From: r.From, To: r.From})
	}
	hash, err := lower(dropping(single.Set()), everything)
	if err != nil {
		t.Fatal(err)
	}
	check("hash sets", hash)
	counted := dropping(addrset.Set{})
	counted.Sets[len(counted.Sets)-1].Counters = true
	for r := range single.Set().Only4().Each() {
		counted.Sets[len(counted.Sets)-1].Elements = append(counted.Sets[len(counted.Sets)-1].Elements,
			program.Element{Parts: []program.Value{{Addresses: program.AddressRange{From: r.From, To: r.To}}}})
	}
	l, err := lower(counted, everything)
	if err != nil {
		t.Fatal(err)
	}
	check("counted", l)
}

// held is how many elements all sets of the kernel have.
func (k kernel) held(t testing.TB) int {
	n := 0
	for _, s := range k.read(t, true).Tree.Sets {
		n += s.Len()
	}
	return n
}
