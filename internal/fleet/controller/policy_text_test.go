package controller

import (
	"strings"
	"testing"
)

// TestWithoutAccess: nothing of access is left, wherever it stands, and the rest stands where it stood.
func TestWithoutAccess(t *testing.T) {
	t.Parallel()
	const before, after = "version: 1\nfleet: shop # ours\n", "sets:\n  access: [192.0.2.0/24]\n"
	for _, access := range []string{
		"access:\n  - { who: \"user:erika@example.net\", role: admin }\n  # erika too\n  - who: oidc:netops\n    role: viewer\n",
		"access: [{who: \"user:erika@example.net\",\n  role: admin}] # erika\n",
		"\"access\":\n- { who: 'user:erika@example.net', role: admin }\n\n",
		"? access\n: [{who: \"user:erika@example.net\", role: admin}]\n",
	} {
		n := strings.Count(access, "\n")
		cut := accessCut + strings.Repeat("\n", n)
		for text, want := range map[string]string{before + access + after: before + cut + after, access + after: cut + after, before + after: before + after} {
			if got := withoutAccess(text); got != want {
				t.Errorf("%q\nof %q", got, text)
			}
		}
		for _, text := range []string{before + access, before + strings.TrimSuffix(access, "\n"), before + access + "...\n"} {
			if got := withoutAccess(text); !strings.HasPrefix(got, before+accessCut+"\n") || strings.TrimRight(got[len(before+accessCut):], "\n") != "" {
				t.Errorf("%q\nof %q", got, text)
			}
		}
	}
	for _, text := range []string{"{version: 1, access: [{who: \"user:erika@example.net\", role: admin}], fleet: shop}\n", "access: [erika"} {
		if got := withoutAccess(text); strings.Contains(got, "erika") || !strings.HasPrefix(got, accessCut) {
			t.Errorf("%q", got)
		}
	}
}
