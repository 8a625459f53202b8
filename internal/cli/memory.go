package cli

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// freely is how much memory a command takes before garbage is collected at all: most end
// before, and collecting would be a fifth of what they take of a processor. With what the
// program itself has, the first apply of a policy of countries stays below 128 MiB.
const freely = 96 << 20

// collectLate sets when garbage is collected, unless the environment does.
func collectLate() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(-1)
		limitMemory(struct{}{})
	}
}

// collectSoon is for the commands that stay, whose garbage would stay with them.
func collectSoon() { collectAt(200) } // an agent at work then has some 30 MB

// collectAt collects garbage when there is so much of it, in percent of what is alive, unless
// the environment says when.
func collectAt(percent int) {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(percent)
	}
}

// limitMemory is called again after each collection: a command of which more is alive is
// given half of that beside it.
func limitMemory(struct{}) {
	alive := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(alive)
	live := int64(alive[0].Value.Uint64()) //nolint:gosec // bytes of this process
	debug.SetMemoryLimit(max(freely, live+live/2))
	runtime.AddCleanup(new([1]*byte), limitMemory, struct{}{})
}
