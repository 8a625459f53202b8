// Package sluice holds the version of the programs; cli/command calls it.
package sluice

import (
	_ "embed"
	"strings"
	"time"
)

//go:embed VERSION
var version string

// Released is the date of VERSION, which a release moves. It is in the man pages, and renamed words
// are errors by it: not by the clock, since a policy is to mean the same tomorrow.
var Released = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)

// built is what scripts/version printed of the tree that make built.
var built string

// Version is that of scripts/version: of a release "0.1.0", between releases
// "0.1.0~git20261129.173858.d359f4b1", and "0.1.0~unknown" of what make did not build.
func Version() string {
	if built != "" {
		return built
	}
	return strings.TrimSpace(version) + "~unknown"
}
