package check_test

import (
	"strings"
	"testing"

	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/prove/check"
)

// Lint says something sensible, at a place, of every policy that is one.
func FuzzLint(f *testing.F) {
	for _, e := range check.Explanations() {
		f.Add("version: 1\n" + e.Before)
		f.Add("version: 1\n" + e.After)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := policy.Parse("policy.yaml", []byte(text))
		if err != nil || strings.Contains(text, "countries") || strings.Contains(text, "continents") {
			return
		}
		facts := manualHost()
		r, err := resolve.Resolve(p, resolve.Options{Facts: facts, User: func(string) (uint32, error) { return 1, nil }})
		if err != nil {
			return
		}
		for _, finding := range check.Lint(r, facts, check.Options{}).Findings {
			if finding.Pos.Line == 0 || finding.Message == "" || strings.ContainsAny(finding.Message, "\n\x01") {
				t.Errorf("%+v of\n%s", finding, text)
			}
			if w := finding.Witness; w != nil && (!w.Packet.Source.IsValid() || !w.Packet.Destination.IsValid() || w.Text() == "" || strings.Contains(w.Text(), "\x01")) {
				t.Errorf("%s: the packet %+v of\n%s", finding.Code, w.Packet, text)
			}
		}
	})
}
