package optimize_test

import (
	"testing"

	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program/compile"
	"sluice/internal/program/manyrules"
	"sluice/internal/program/optimize"
)

// Whatever shape thousands of rules have, some comparisons for each are all that
// a pass makes.
func TestManyRulesAreBounded(t *testing.T) {
	const perRule = 700
	rules := 10_000
	if testing.Short() {
		rules = 1_500 // still more than twice perRule: each against each is too many
	}
	for _, s := range manyrules.Shapes {
		t.Run(s.Name, func(t *testing.T) {
			p, err := policy.Parse("policy.yaml", s.Policy(rules, 1))
			if err != nil {
				t.Fatal(err)
			}
			r, err := resolve.Resolve(p, resolve.Options{})
			if err != nil {
				t.Fatal(err)
			}
			made, err := compile.Compile(r)
			if err != nil {
				t.Fatal(err)
			}
			err = optimize.Run(made, optimize.Options{Compared: func(pass string, n int) {
				if n > perRule*rules {
					t.Errorf("pass %s made %d comparisons for %d rules, want %d for each at the most", pass, n, rules, perRule)
				}
				if n > rules {
					t.Logf("%s: %d comparisons", pass, n)
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
