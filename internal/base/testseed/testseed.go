// Package testseed gives random tests their seed, so that a change is judged by the
// same inputs each time, and by new ones where they are asked for. Tests alone call it.
package testseed

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Variable is the environment variable that holds a seed to use instead, a decimal
// number, or [Anew].
const Variable = "SLUICE_TEST_SEED"

// Anew is the value of [Variable] with which each call of [Of] draws a new seed:
// `make test-long` sets it.
const Anew = "random"

// Of is the test's own seed, which is made of its name, or what [Variable] says.
// The test prints it where it fails.
func Of(t testing.TB) uint64 {
	t.Helper()
	seed, err := from(os.Getenv(Variable), t.Name())
	if err != nil {
		t.Fatalf("%s: %v", Variable, err)
	}
	t.Logf("seed: %s=%d", Variable, seed)
	return seed
}

// Rounds is how many inputs a test draws: short with go test -short, which is `make
// test`, long otherwise.
func Rounds(short, long int) int {
	if testing.Short() {
		return short
	}
	return long
}

func from(text, name string) (uint64, error) {
	switch text {
	case "":
		h := fnv.New64a()
		_, _ = h.Write([]byte(name))
		return h.Sum64(), nil
	case Anew:
		return rand.Uint64(), nil //nolint:forbidigo // the one place that draws
	default:
		return strconv.ParseUint(text, 10, 64)
	}
}

// Rand is randomness from that seed. It is for one goroutine: what several draw in
// turn, or in the order of a map, is another with each run.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Of(t), 0))
}
