package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/lab/packetbench/against"
	"sluice/internal/lab/peers"
)

// againstHelp is part of the help of bench packet.
var againstHelp = `--against compares Sluice with rulesets of the same meaning as people write them today, and the
report begins with the ratios. Peers whose programs are missing on this machine are listed, and
so is what a peer cannot express:

` + peersText() + `
  FILE.nft            a ruleset of your own, by nft -f
  FILE.rules          the same, of iptables-save; FILE6.rules next to it is IPv6
  all                 every peer that this machine has

A name means its peers with iptables-legacy and iptables-nft; to choose one, add the brackets
that the report shows: "ipset (iptables-nft)".`

func peersText() string {
	about := map[string]string{}
	for _, p := range peers.Every() {
		if about[p.Group] == "" {
			about[p.Group], _, _ = strings.Cut(p.About, "; iptables-")
		}
	}
	about["chain-per-/8"] = "a chain for each /8: jumps of iptables, a verdict map of nftables"
	var lines []string
	for _, name := range peers.Groups() {
		lines = append(lines, "  "+name+strings.Repeat(" ", max(1, 20-len(name)))+about[name])
	}
	return strings.Join(lines, "\n")
}

func addAgainst(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSlice("against", nil, "compare Sluice with `PEERS`: rulesets of the same meaning")
	command.AddTime(flags, "patience", against.Patience, "skip a peer that takes longer than `TIME` to load")
	command.Must(cmd.RegisterFlagCompletionFunc("against", command.Words(append(peers.Groups(), against.All)...)))
}

// againstOf reads the flags; nil where nothing is put beside Sluice.
func againstOf(cmd *cobra.Command) (*against.Sides, error) {
	names, _ := cmd.Flags().GetStringSlice("against")
	if len(names) == 0 {
		return nil, nil
	}
	return against.Choose(names, patienceOf(cmd))
}

func patienceOf(cmd *cobra.Command) time.Duration { return command.TimeOf(cmd.Flags(), "patience") }
