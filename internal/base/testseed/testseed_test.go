package testseed

import "testing"

func TestSeeds(t *testing.T) {
	of := func(text, name string) uint64 {
		seed, err := from(text, name)
		if err != nil {
			t.Fatal(err)
		}
		return seed
	}
	a, again := of("", "TestA"), of("", "TestA")
	if a != again || a == of("", "TestB") {
		t.Error("without a word a seed is not the test's own")
	}
	if of("7391760807879377621", "TestA") != 7391760807879377621 {
		t.Error("a seed that is given is not used")
	}
	if a, b := of(Anew, "TestA"), of(Anew, "TestA"); a == b {
		t.Errorf("%q gives the same seed twice", Anew)
	}
	for _, text := range []string{"x", "-1", "18446744073709551616"} {
		if _, err := from(text, "TestA"); err == nil {
			t.Errorf("%q is taken for a seed", text)
		}
	}
	t.Setenv(Variable, "12")
	if Of(t) != 12 {
		t.Error("the environment's seed is not used")
	}
}
