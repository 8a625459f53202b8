package cli

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/backend"
	"sluice/internal/engine/apply"
)

// TestLinesOn: a change that takes long says the step that it is at, and every
// one after; the next change is silent again until it takes long.
func TestLinesOn(t *testing.T) {
	read, write := io.Pipe()
	lines := make(chan string, 10)
	go func() {
		var text strings.Builder
		for buf := make([]byte, 1); ; {
			if _, err := read.Read(buf); err != nil {
				close(lines)
				return
			}
			if text.WriteByte(buf[0]); buf[0] == '\n' {
				lines <- text.String()
				text.Reset()
			}
		}
	}()
	step := func(done int, name string) apply.Progress {
		return apply.Progress{Done: done, Total: 3, Name: name, Purpose: backend.Fill}
	}
	show := linesOn(write, time.Nanosecond)
	show(step(0, "one"))
	got := []string{<-lines} // however long it takes: the line comes
	show(step(1, "two"))
	show(step(2, "three"))
	show(apply.Progress{Done: 3, Total: 3})
	patient := linesOn(write, time.Hour)
	patient(step(0, "unseen"))
	patient(step(1, "unseen"))
	patient(apply.Progress{Done: 3, Total: 3})
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	for line := range lines {
		got = append(got, line)
	}
	want := []string{"fill one (step 1 of 3)\n", "fill two (step 2 of 3)\n", "fill three (step 3 of 3)\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
