package nftrace

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// sample is an event as the kernel gives it: a rule that jumps.
func sample(t testing.TB) []byte {
	t.Helper()
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	e.Uint32(unix.NFTA_TRACE_ID, 7)
	e.Uint32(unix.NFTA_TRACE_TYPE, uint32(Rule))
	e.String(unix.NFTA_TRACE_TABLE, "sluice")
	e.String(unix.NFTA_TRACE_CHAIN, "input")
	e.Uint64(unix.NFTA_TRACE_RULE_HANDLE, 12)
	e.Nested(unix.NFTA_TRACE_VERDICT, func(e *netlink.AttributeEncoder) error {
		e.ByteOrder = binary.BigEndian
		e.Int32(unix.NFTA_VERDICT_CODE, Jump)
		e.String(unix.NFTA_VERDICT_CHAIN, "rules")
		return nil
	})
	e.Bytes(unix.NFTA_TRACE_NETWORK_HEADER, []byte{0x45})
	e.Uint32(unix.NFTA_TRACE_IIF, 3)
	e.Uint32(unix.NFTA_TRACE_MARK, 9)
	e.Uint32(unix.NFTA_TRACE_NFPROTO, 2)
	e.Uint32(99, 1) // of a newer kernel
	data, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte{1, 0, 0, 0}, data...)
}

func TestParse(t *testing.T) {
	got, err := Parse(sample(t))
	want := Event{
		ID: 7, Family: 1, Protocol: 2, Table: "sluice", Chain: "input", Handle: 12, Type: Rule,
		Verdict: Jump, To: "rules", In: 3, Mark: 9, Network: []byte{0x45},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for _, broken := range [][]byte{nil, {1, 0, 0}, {1, 0, 0, 0, 99, 0, 1, 0}, {1, 0, 0, 0, 5, 0, 6, 0, 1, 0, 0, 0}} {
		if _, err := Parse(broken); err == nil {
			t.Errorf("%x was taken", broken)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample(f))
	f.Add([]byte{1, 0, 0, 0, 8, 0, 5, 128, 4, 0, 1, 0})
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = Parse(data) })
}
