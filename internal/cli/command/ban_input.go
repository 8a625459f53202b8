package command

import (
	"errors"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sluice/internal/language/bans"
)

// BanInput reads the addresses that a command is to ban or to lift, from its arguments and
// from standard input.
func BanInput(cmd *cobra.Command, args []string) ([]bans.Named, error) {
	in := cmd.InOrStdin()
	if len(args) == 0 {
		if f, is := in.(*os.File); !is || !term.IsTerminal(int(f.Fd())) {
			args = []string{"-"}
		}
	}
	var out []bans.Named
	for i, a := range args {
		if a == "-" {
			if slices.Contains(args[:i], "-") {
				return nil, errors.New("standard input is given twice")
			}
			list, err := bans.ReadInput("standard input", in)
			if err != nil {
				return nil, err
			}
			out = append(out, list...)
			continue
		}
		n, err := bans.ParseNamed(a)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	if len(out) == 0 {
		return nil, errors.New("no address given\nhint: name addresses, prefixes or ranges, or write them to standard input, one a line")
	}
	return out, nil
}
