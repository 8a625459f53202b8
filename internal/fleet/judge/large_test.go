package judge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// large is a judge, a policy and one that would be judged for minutes.
func large(t *testing.T) (j *Judge, a, next *Asked) {
	t.Helper()
	j, a = fleet(t, 1, 1, "countries: [SM]")
	next = edited(a, 0)
	var b strings.Builder
	b.WriteString("version: 1\nhosts: role=r0\ninput:\n  rules:\n")
	for i := range 10_000 {
		fmt.Fprintf(&b, "    - allow tcp/%d from 10.%d.%d.0/24 limit %d/second\n", 1+i, i>>8, i&255, 1+i%100)
	}
	next.Files["parts/r0.yaml"] = Text([]byte(b.String()))
	delete(next.Files, "parts/r1.yaml")
	return j, a, next
}

// TestLarge: what would be judged for minutes ends when its time is over, so that it keeps nobody
// else waiting.
func TestLarge(t *testing.T) {
	t.Parallel()
	j, a, next := large(t)
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

// TestLargeInMemory: what would take more memory than a question may ends too, with an error that
// says so, and not that of who asks for little.
func TestLargeInMemory(t *testing.T) {
	j, a, next := large(t)
	j.growth = 8 << 20
	turn, leave, err := j.Turn(t.Context(), "user:erika")
	if err != nil {
		t.Fatal(err)
	}
	var busy *BusyError
	if _, err := j.Check(turn, next, nil); err == nil || !errors.As(context.Cause(turn), &busy) || !strings.Contains(busy.Error(), "more than 1024 MB of memory") {
		t.Errorf("%v, and the turn ended by %v", err, context.Cause(turn))
	}
	leave()
	j.growth = mostGrowth
	turn, leave, err = j.Turn(t.Context(), "user:erika")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Check(turn, a, nil); err != nil || turn.Err() != nil {
		t.Errorf("%v, %v", err, turn.Err())
	}
	leave()
}
