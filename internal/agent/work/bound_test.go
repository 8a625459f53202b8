package work

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/agent/api"
)

// TestMain is such a process too, for TestBounded.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[2] == "work" {
		overdo(os.Args[1])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// overdo takes what a bounded process may not.
func overdo(what string) {
	if err := (Order{Bounded: true}).Bound(); err != nil {
		panic(err)
	}
	switch what {
	case "memory":
		var all [][]byte
		for range 2 * mostMemory >> 20 {
			all = append(all, make([]byte, 1<<20))
		}
		_ = os.WriteFile(os.DevNull, all[0], 0)
	case "time": // which is the bound, and would take a test too long
		var is unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_CPU, &is); err != nil || is.Cur != 30 || is.Max != 30 {
			return
		}
		if err := unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: 1, Max: 1}); err != nil {
			return
		}
		for n := uint32(1); n != 0; n |= 1 {
			n += 2
		}
	}
}

// TestBounded: what takes too much memory, or time of processors, ends with an error that says so, and
// who is not bounded has no such bounds.
func TestBounded(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"memory", "time"} {
		_, err := Run(t.Context(), []string{"/proc/self/exe", what}, Order{Operation: "map", Bounded: true}, func(api.Line) {})
		var f *api.Failure
		if !errors.As(err, &f) || !strings.Contains(f.Text, "it takes more than 30s of a processor, or more than 768 MB: ask about less") {
			t.Errorf("%s: %v", what, err)
		}
	}
	var before, after unix.Rlimit
	if err := errors.Join(unix.Getrlimit(unix.RLIMIT_DATA, &before), Order{}.Bound(), unix.Getrlimit(unix.RLIMIT_DATA, &after)); err != nil || before != after {
		t.Errorf("%v, and then %v: %v", before, after, err)
	}
}
