// Package sluice holds the version of the programs; cli/command calls it.
package sluice

import (
	_ "embed"
	"runtime/debug"
	"strings"
)

//go:embed VERSION
var version string

// Version is what the file VERSION says and, of a build in a repository of git, the
// commit: "0.1.0", "0.1.0+70bf49b0a1c2", "0.1.0+70bf49b0a1c2.changed" where the files
// were others than those of the commit.
func Version() string {
	info, _ := debug.ReadBuildInfo()
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	commit, changed := "", ""
	if info != nil {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && s.Value != "":
				commit = "+" + s.Value[:min(12, len(s.Value))]
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = ".changed"
			}
		}
	}
	if commit == "" {
		changed = ""
	}
	return strings.TrimSpace(version) + commit + changed
}
