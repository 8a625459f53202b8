package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice/internal/language/source"
)

// renameFlags has commands take the old names of their flags, and warn of them, until they are
// errors.
func renameFlags(root *cobra.Command) {
	for i := range source.Renames {
		r := &source.Renames[i]
		path := strings.Fields(r.Of)
		if path[0] != root.Name() || r.Over() {
			continue
		}
		cmd, _, err := root.Find(path[1:])
		if err != nil {
			panic(err) // a mistake in the table
		}
		old, now, warned := strings.TrimPrefix(r.Old, "--"), strings.TrimPrefix(r.New, "--"), false
		others := cmd.Flags().GetNormalizeFunc()
		cmd.Flags().SetNormalizeFunc(func(f *pflag.FlagSet, name string) pflag.NormalizedName {
			if name != old {
				return others(f, name)
			}
			if !warned {
				w := cmd.ErrOrStderr()
				fmt.Fprintf(w, "%s %s\n", Paint(w, "33", "warning:"), r)
			}
			warned = true
			return pflag.NormalizedName(now)
		})
	}
}
