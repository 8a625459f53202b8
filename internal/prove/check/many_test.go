package check_test

import (
	"testing"

	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program/manyrules"
	"sluice/internal/prove/check"
	"sluice/internal/system/host"
)

// Whatever shape thousands of rules have, some comparisons for each are all that
// check makes.
func TestManyRulesAreBounded(t *testing.T) {
	rules, perRule := 10_000, 200
	if testing.Short() {
		rules, perRule = 2_000, 400 // each against each would be 1,000
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
			findings, compared := check.RunCounting(r, host.Facts{})
			t.Logf("%d findings, %d comparisons", len(findings), compared)
			if compared > perRule*rules {
				t.Errorf("%d comparisons of boxes for %d rules, want %d for each at the most", compared, rules, perRule)
			}
			if least := s.Hidden(rules); len(findings) < least {
				t.Errorf("%d findings, want %d at the least", len(findings), least)
			}
		})
	}
}

// Advice is bounded too, by more for each rule.
func TestLintOfManyRulesIsBounded(t *testing.T) {
	const rules, perRule = 300, 8000
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
			findings, compared := check.LintCounting(r, host.Facts{})
			t.Logf("%d findings, %d comparisons", len(findings), compared)
			if compared > perRule*rules {
				t.Errorf("%d comparisons of boxes for %d rules, want %d for each at the most", compared, rules, perRule)
			}
		})
	}
}
