// Package sluice holds the version of the programs; cli/command calls it.
package sluice

import (
	_ "embed"
	"strings"
)

//go:embed VERSION
var version string

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
