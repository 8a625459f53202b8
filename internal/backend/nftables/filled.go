package nftables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/program"
	"sluice/internal/system/kernel/nfset"
)

// Filled reads a set that packets fill: the kernel's sets of both families, or the
// one of keys without an address.
func (s *State) Filled(ctx context.Context, id string) ([]backend.Entry, error) {
	var out []backend.Entry
	var conn *nfset.Conn
	for _, k := range s.Tree.Sets {
		if k.Life != program.Dynamic || !isOf(k.Name, id) {
			continue
		}
		if conn == nil {
			var err error
			if conn, err = nfset.Open(); err != nil {
				return nil, err
			}
			defer conn.Close()
		}
		var entries []backend.Entry
		begin := func() { entries = entries[:0] }
		err := conn.Dump(ctx, k.inKernel(s.Tree.Table), begin, func(e nfset.Element) error {
			entry, err := k.entry(e)
			entries = append(entries, entry)
			return err
		})
		// Packets change it all the time: what was read is good enough to report.
		if err != nil && !errors.Is(err, nfset.ErrUnfinished) {
			return nil, err
		}
		out = append(out, entries...)
	}
	return out, nil
}

// isOf says whether a dynamic set of the kernel became of a program's.
func isOf(kernel, id string) bool {
	base, _ := cutHash(kernel, 8)
	if other, others := ofOthers(kernel); others {
		return other == id
	}
	return base == stem(id) || base == stem(id)+"_v4" || base == stem(id)+"_v6"
}

func (s *Set) entry(e nfset.Element) (backend.Entry, error) {
	out := backend.Entry{Count: backend.Count{Packets: e.Packets, Bytes: e.Bytes}}
	if len(s.Types) == 1 {
		if a, ok := netip.AddrFromSlice(e.Key); ok {
			bits := 32
			switch {
			case a.Is6() && s.Others:
				bits = 128
			case a.Is6():
				bits = 64
			}
			out.Address = netip.PrefixFrom(a, bits)
			return out, nil
		}
	}
	text, err := s.tuple(e.Key, nil)
	if err != nil {
		return out, fmt.Errorf("set %s: %w", s.Name, err)
	}
	for part := range strings.SplitSeq(text, " . ") {
		n, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return out, fmt.Errorf("set %s: %w", s.Name, err)
		}
		out.Numbers = append(out.Numbers, n)
	}
	return out, nil
}
