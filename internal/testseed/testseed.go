// Package testseed gives random tests their seed. Tests alone call it.
package testseed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Variable is the environment variable that repeats a run.
const Variable = "SLUICE_TEST_SEED"

// Of is a seed of its own for each run, or that of [Variable]. The test prints it.
func Of(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(Variable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", Variable, err)
		}
	}
	t.Logf("seed: %s=%d", Variable, seed)
	return seed
}

// Rand is randomness from that seed.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Of(t), 0))
}
