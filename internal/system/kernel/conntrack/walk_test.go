package conntrack

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzParsePart: whatever bytes come, it ends, and gives no more entries than messages.
func FuzzParsePart(f *testing.F) {
	flow := Flow{Protocol: unix.IPPROTO_TCP, Original: Tuple{
		Source: netip.MustParseAddr("2001:db8::1"), Destination: netip.MustParseAddr("2001:db8::2"), SourcePort: 1, DestinationPort: 2,
	}, Answered: true, Mark: 7}
	m, err := flow.message()
	if err != nil {
		f.Fatal(err)
	}
	whole := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(m.Data)))
	whole = binary.NativeEndian.AppendUint16(whole, unix.NFNL_SUBSYS_CTNETLINK<<8|messageNew)
	whole = append(whole, make([]byte, unix.SizeofNlMsghdr-len(whole))...)
	whole = append(whole, m.Data...)
	seen := 0
	if _, _, err := parsePart(whole, new(Entry), func(e *Entry) error {
		seen++
		if e.Family != 6 || e.Original != flow.Original || e.Reply != flow.Original.Turned() || e.Mark != 7 || e.State.String() != "established" || e.Status&SeenReply == 0 || e.Protocol != unix.IPPROTO_TCP {
			f.Errorf("read %+v", *e)
		}
		return nil
	}); err != nil || seen != 1 {
		f.Fatalf("%d entries, %v", seen, err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Fuzz(func(t *testing.T, data []byte) {
		n := 0
		_, _, _ = parsePart(data, new(Entry), func(*Entry) error { n++; return nil })
		if n > len(data)/unix.SizeofNlMsghdr {
			t.Errorf("%d entries of %d bytes", n, len(data))
		}
	})
}
