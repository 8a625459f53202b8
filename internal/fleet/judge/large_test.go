package judge

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestLarge: what would be judged for minutes ends when its time is over, so that it keeps nobody
// else waiting.
func TestLarge(t *testing.T) {
	t.Parallel()
	j, a := fleet(t, 1, 1, "countries: [SM]")
	next := edited(a, 0)
	var b strings.Builder
	b.WriteString("version: 1\nhosts: role=r0\ninput:\n  rules:\n")
	for i := range 10_000 {
		fmt.Fprintf(&b, "    - allow tcp/%d from 10.%d.%d.0/24 limit %d/second\n", 1+i, i>>8, i&255, 1+i%100)
	}
	next.Files["parts/r0.yaml"] = Text([]byte(b.String()))
	delete(next.Files, "parts/r1.yaml")
	for what, ask := range map[string]func(ctx context.Context) error{
		"check": func(ctx context.Context) error { _, err := j.Check(ctx, next, nil); return err },
		"diff":  func(ctx context.Context) error { _, _, err := j.Diff(ctx, next, a, nil); return err },
		"map":   func(ctx context.Context) error { _, err := j.Maps(ctx, next, nil, "", "", "", nil); return err },
		"reach": func(ctx context.Context) error { _, err := j.Reach(ctx, next, nil, "", nil); return err },
		"query": func(ctx context.Context) error { _, err := j.Query(ctx, next, nil, Words{}, nil, nil, nil); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := ask(ctx); err == nil {
			t.Errorf("%s is answered", what)
		}
		cancel()
	}
}
