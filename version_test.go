package sluice

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	version = "1.2.3\n"
	const commit = "70bf49b0a1c2d3e4f5061728394a5b6c7d8e9f00"
	for want, settings := range map[string][]debug.BuildSetting{
		"1.2.3":                      {{Key: "GOOS", Value: "linux"}},
		"1.2.3+70bf49b0a1c2":         {{Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: "false"}},
		"1.2.3+70bf49b0a1c2.changed": {{Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: "true"}},
	} {
		if got := versionOf(&debug.BuildInfo{Settings: settings}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := versionOf(nil); got != "1.2.3" {
		t.Errorf("without build info: %q", got)
	}
}
