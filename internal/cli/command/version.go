package command

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"sluice"
)

// NewVersion says which build of a program runs.
func NewVersion(program string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of " + program,
		Long: `Prints the version, the version of Go and the platform. Between releases the version names the
time and the commit of the build, and sorts before the release: 0.1.0~git20261129.173858.d359f4b1.

Exit status: 0.`,
		Example: fmt.Sprintf("  %[1]s version\n  %[1]s version --json", program),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := cmd.OutOrStdout()
			if JSON(cmd) {
				return PrintJSON(w, struct {
					Version  string `json:"version"`
					Go       string `json:"go"`
					Platform string `json:"platform"`
				}{sluice.Version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := fmt.Fprint(w, versionText(cmd.Root()))
			return err
		},
	}
}

func versionText(root *cobra.Command) string {
	return fmt.Sprintf("%s %s (%s %s/%s)\n", root.Name(), sluice.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// addVersionFlag adds --version. That of the library would be printed by its templates,
// whose reflection keeps every exported method of the program from being left out by
// the linker: megabytes.
func addVersionFlag(root *cobra.Command) {
	root.Flags().BoolP("version", "v", false, "version for "+root.Name())
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if asked, _ := cmd.Flags().GetBool("version"); asked && cmd == root {
			fmt.Fprint(cmd.OutOrStdout(), versionText(root))
			return
		}
		help(cmd, args)
	})
}
