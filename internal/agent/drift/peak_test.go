package drift

import (
	"net/netip"
	"testing"
	"time"

	"sluice/internal/system/kernel/conntrack"
)

// TestPeak: the most entries that the connection table had are told when they are gone.
func TestPeak(t *testing.T) {
	h := newHost(t)
	h.begin()
	var flows []conntrack.Flow
	for i := range 300 {
		flows = append(flows, conntrack.Flow{Protocol: 17, Seconds: 3600, Original: conntrack.Tuple{
			Source: netip.MustParseAddr("10.0.0.2"), Destination: netip.MustParseAddr("10.0.0.1"), SourcePort: uint16(1000 + i), DestinationPort: 53,
		}})
	}
	if err := h.Netns.Do(func() error { return conntrack.CreateAll(flows) }); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if w, err := h.Watched(); err == nil && w != nil && w.Peak >= 300 {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatal("it was not seen")
		}
	}
	if err := h.Netns.Do(func() error {
		_, err := conntrack.Delete(func(e conntrack.Entry) bool { return e.Protocol == 17 })
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s, err := h.Status(t.Context(), false)
	if err != nil || s.Connections == nil || s.Connections.Peak < 300 || s.Connections.Entries >= 300 || s.Connections.PeakAt.IsZero() {
		t.Errorf("%+v, %v", s.Connections, err)
	}
}
