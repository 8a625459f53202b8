package engine_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/engine"
	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/conntrack"
)

// benchEntries is a quarter of a million, less what others have on the machine meanwhile.
const benchEntries = 240_000

// BenchmarkEntries counts a table by source, beside a dump that is not looked at:
// go test -run '^$' -bench Entries -count 5 ./internal/engine
func BenchmarkEntries(b *testing.B) {
	h := testnet.New(b).Unnamed("host")
	h.Nft("table inet t { chain c { type filter hook input priority 0; ct state new accept; }; }")
	var flows []conntrack.Flow
	for i := range benchEntries {
		source := netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
		flows = append(flows, conntrack.Flow{Protocol: 6, Answered: true, Seconds: 3600, Original: conntrack.Tuple{
			Source: source, Destination: netip.MustParseAddr("192.0.2.1"), SourcePort: uint16(1024 + i>>16), DestinationPort: 443,
		}})
	}
	if err := h.Do(func() error { return conntrack.CreateAll(flows) }); err != nil {
		b.Fatal(err)
	}
	flows = nil
	b.Run("bare dump", func(b *testing.B) {
		for b.Loop() {
			if err := h.Do(dump); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("by source", func(b *testing.B) {
		for b.Loop() {
			if err := h.Do(func() error {
				out, err := new(engine.Host).Entries(b.Context(), engine.EntryQuestion{By: []string{"source"}, Most: 20})
				if err == nil && out.Matched != benchEntries {
					b.Errorf("%d entries", out.Matched)
				}
				return err
			}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// dump asks for the table and throws away what comes.
func dump() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request := make([]byte, 20)
	binary.NativeEndian.PutUint32(request, 20)
	binary.NativeEndian.PutUint16(request[4:], unix.NFNL_SUBSYS_CTNETLINK<<8|1)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	part := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(fd, part, 0)
		if err != nil {
			return err
		}
		if n >= 16 && binary.NativeEndian.Uint16(part[4:]) == unix.NLMSG_DONE {
			return nil
		}
	}
}
