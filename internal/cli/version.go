package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print which sluice this is",
		Long: `Prints the version or, of a build between versions, the commit that this program
was built from; then the version of Go and the platform.

Exit status: 0.`,
		Example: "  sluice version\n  sluice version --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := cmd.OutOrStdout()
			if optionsOf(cmd).json {
				return printJSON(w, struct {
					Version  string `json:"version"`
					Go       string `json:"go"`
					Platform string `json:"platform"`
				}{buildVersion(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := fmt.Fprint(w, versionText())
			return err
		},
	}
}

func versionText() string {
	return fmt.Sprintf("sluice %s (%s %s/%s)\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// buildVersion says which sluice this is: the version of the module, or the
// commit that it was built from.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = " with changes"
		}
	}
	// A version of a commit without a tag is made of its date: the commit says
	// more.
	v := info.Main.Version
	tagged := v != "" && v != "(devel)" && (revision == "" || !strings.Contains(v, revision[:min(12, len(revision))]))
	switch {
	case tagged:
		return v
	case revision != "":
		return revision + modified
	}
	return "development"
}
