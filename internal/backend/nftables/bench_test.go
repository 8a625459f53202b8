package nftables

import (
	"fmt"
	"net/netip"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// large is a program with a set as large as "all but Europe" of both families.
func large() *program.Program {
	s := program.Set{ID: "served", Key: []program.Field{program.Source}, Life: program.Static}
	var all addrset.Builder
	for i := range 48_665 {
		from := netip.AddrFrom4([4]byte{byte(1 + i>>14), byte(i >> 6), byte(i << 2), 0})
		all.AddRange(addrset.Range{From: from, To: netip.AddrFrom4([4]byte{byte(1 + i>>14), byte(i >> 6), byte(i<<2) + 1, byte(i)})})
	}
	for i := range 95_851 {
		from := netip.MustParseAddr(fmt.Sprintf("2001:%x:%x::", i>>8, i<<4&0xff0))
		all.AddRange(addrset.Range{From: from, To: netip.MustParseAddr(fmt.Sprintf("2001:%x:%x:ffff:ffff:ffff:ffff:ffff", i>>8, i<<4&0xff0+3))})
	}
	s.Addresses = all.Set()
	c := construct{match: conditions{setOn(program.Source, "served")}}
	p := c.program()
	p.Sets = append(p.Sets, s)
	return p
}

func BenchmarkLowerLarge(b *testing.B) {
	p := large()
	for b.Loop() {
		if _, err := New().Lower(p, everything); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTextLarge(b *testing.B) {
	a, err := New().Lower(large(), everything)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		b.SetBytes(int64(len(a.Text())))
	}
}

func BenchmarkEncodeLarge(b *testing.B) {
	a, err := New().Lower(large(), everything)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		data, err := a.Encode()
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(data)))
	}
}

func BenchmarkDecodeLarge(b *testing.B) {
	a, err := New().Lower(large(), everything)
	if err != nil {
		b.Fatal(err)
	}
	data, err := a.Encode()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := New().Decode(data); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkKernelLarge loads, reads and compares on the kernel.
func BenchmarkKernelLarge(b *testing.B) {
	host := kernelHost(b)
	made, err := New().Lower(large(), everything)
	if err != nil {
		b.Fatal(err)
	}
	a := made.(*artifact)
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			host.load(b, New(), nil)
			host.load(b, New(), a)
		}
	})
	b.Run("read contents", func(b *testing.B) {
		for b.Loop() {
			host.read(b, true)
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			host.read(b, false)
		}
	})
	s := host.read(b, true)
	b.Run("compare", func(b *testing.B) {
		for b.Loop() {
			if d := compare(a.Tree, s, nil); len(d) > 0 {
				b.Fatal(differences(d))
			}
		}
	})
	b.Run("steps", func(b *testing.B) {
		for b.Loop() {
			if st := steps(a.Tree, s, openings{}, nil); len(st) > 0 {
				b.Fatal(st[0].Name)
			}
		}
	})
}
