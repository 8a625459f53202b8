package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/ring"
	"sluice/internal/engine/apply"
)

// What is kept is given with its numbers; what cannot be read, or is not wanted, is counted
// with the next packet that is.
func TestLogKept(t *testing.T) {
	h := &Host{Host: &apply.Host{Dir: t.TempDir()}}
	if _, err := h.Log(t.Context(), LogQuestion{}, nil); !errors.Is(err, ErrNotKept) {
		t.Errorf("nothing was kept: %v", err)
	}
	kept, err := h.OpenLog(ring.Least)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() })
	for _, text := range []string{
		`{"time":"2026-11-28T14:00:00Z","hook":"input","source":"192.0.2.7","protocol":"tcp","port":22,"country":"NO","file":"p.yaml","line":4}`,
		`{"time":`, `[]`,
		`{"time":"2026-11-28T14:00:01Z","hook":"input","source":"192.0.2.8","lost":3}`,
		`{"time":"2026-11-28T14:00:02Z","hook":"input","source":"192.0.2.7","lost":1}`,
	} {
		if _, err := kept.Append([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := kept.Flush(); err != nil {
		t.Fatal(err)
	}
	for want, q := range map[string]LogQuestion{
		"[1 192.0.2.7 lost 0 4 192.0.2.8 lost 5 5 192.0.2.7 lost 1] 3": {},
		"[1 192.0.2.7 lost 0 5 192.0.2.7 lost 4] 2":                    {LogChoice: LogChoice{Source: "192.0.2.7"}}, // what is damaged is not read
		"[1 192.0.2.7 lost 0 5 192.0.2.7 lost 6] 2":                    {LogChoice: LogChoice{Source: "192.0.2.7/32"}, Since: time.Now().Add(-time.Hour)},
		"[1 192.0.2.7 lost 0] 1":                                       {LogChoice: LogChoice{Country: "no", Line: "4"}},
		"[4 192.0.2.8 lost 3] 1":                                       {Number: 4},
		"[] 0 ":                                                        {Number: 6},
		"[] 0":                                                         {Since: time.Now().Add(time.Hour)},
	} {
		got := []string{}
		out, err := h.LogKept(t.Context(), q, kept.Grown, func(l Logged) { got = append(got, fmt.Sprint(l.Number, " ", l.Source, " lost ", l.Lost)) })
		if text := fmt.Sprint(got, " ", out.Packets); err != nil || text != strings.TrimSpace(want) {
			t.Errorf("%+v: %s, want %s: %v", q, text, want, err)
		}
	}
}
