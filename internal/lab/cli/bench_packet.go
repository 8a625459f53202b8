package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/base/addrset"
	"sluice/internal/cli/command"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/packetbench"
)

func newBenchPacket() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "packet [FILE]",
		Short: "Measure the cost of each kind of packet under a policy",
		Long: `Measures the cost of each kind of packet under a policy (/etc/sluice/policy.yaml unless you give FILE)
on this kernel, in addition to the bare network stack: banned, blocked, allowed, established,
bypassed, forwarded, rewritten by nat, in IPv4 and IPv6. Kinds that the policy does not have are
listed with the reason.

It makes hosts for the policy's zones in network namespaces, and loads the policy there with "sluice
apply", next to a host without rules and a second host with the same policy, which shows the error of
the method (A/A). Packets come from up to 65,536 addresses drawn from the policy's own sets in
proportion to their size. The policy's meaning for each is known, and a packet that is treated
otherwise ends the run. Established connections are made by real packets through the rules. The sides
are measured in turn, round after round; the table shows medians with the bounds of their 95 %
confidence interval.

Packets are injected as XDP live frames, or by a ring of AF_PACKET on kernels without those (before
5.18); the report says which. It warns if the machine is too noisy.

` + againstHelp + `

` + scaleHelp + `

` + reportHelp + `
Kinds: ` + kindsText() + `.

Exit status: 0 measured, 2 bad use, a bad policy, or a machine that cannot measure, 130 interrupted,
after the report of the rounds so far.
Environment: SLUICE_STATE_DIR.
Files: /etc/sluice/policy.yaml; country data and lists in /var/lib/sluice, read only.`,
		Example: `  sluice-lab bench packet
  sluice-lab bench packet policy.yaml --kinds banned,established --for 30s
  sluice-lab bench packet policy.yaml --against nftables-set,ipset,ufw,mine.nft
  sluice-lab bench packet --scale 1k,10k,100k,1M --scale-of prefixes
  sluice-lab bench packet policy.yaml --save before.json`,
		Args: cobra.MaximumNArgs(1),
		RunE: runBenchPacket,
	}
	flags := cmd.Flags()
	flags.StringSlice("kinds", nil, "measure only these `KINDS`")
	flags.String("family", "", "measure only `ipv4` or ipv6")
	flags.Int("rounds", 25, "measure `N` rounds")
	command.AddTime(flags, "for", 0, "measure for about `TIME`, whatever the number of rounds")
	flags.Int("packets", 0, "send exactly `N` packets a round and side, instead of as many as fit into 20 ms, so that runs are alike")
	flags.Int("sources", measure.Sources, "draw up to `N` addresses for each kind")
	flags.Int("flows", 4096, "make up to `N` known connections for each kind")
	flags.Uint64("seed", 1, "random seed `NUMBER`")
	flags.String("inject", "auto", "inject packets by `xdp`, ring, or auto: the better one that the kernel has")
	addAgainst(cmd)
	addScale(cmd)
	addReport(cmd)
	cmd.MarkFlagsMutuallyExclusive("rounds", "for")
	command.Must(cmd.RegisterFlagCompletionFunc("kinds", command.Words(kindNames()...)))
	command.Must(cmd.RegisterFlagCompletionFunc("family", command.Words("ipv4", "ipv6")))
	command.Must(cmd.RegisterFlagCompletionFunc("inject", command.Words("auto", "xdp", "ring")))
	return cmd
}

func kindNames() []string {
	var out []string
	for _, k := range packetbench.Kinds {
		out = append(out, string(k))
	}
	return out
}

// kindsText is the names of the kinds for a help text.
func kindsText() string {
	names := kindNames()
	lines, line := []string{}, ""
	for i, n := range names {
		if i < len(names)-1 {
			n += ","
		}
		if len(line)+len(n) > 60 {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + n)
	}
	return strings.Join(append(lines, line), "\n")
}

func runBenchPacket(cmd *cobra.Command, args []string) error {
	if cmd.Flags().Changed("scale") {
		return runBenchScale(cmd, args)
	}
	if cmd.Flags().Changed("scale-of") {
		return errors.New("--scale-of needs --scale\nhint: --scale 1k,10k,100k,1M")
	}
	o, err := packetOptions(cmd, args)
	if err != nil {
		return err
	}
	sides, err := againstOf(cmd)
	if err != nil {
		return err
	}
	if sides != nil {
		sides.Into(&o)
	}
	ctx, stop := measuring(cmd)
	defer stop()
	begun := startReport(cmd, args, "")
	r, err := measured(ctx, cmd, o)
	if r == nil {
		return err
	}
	r.Command, r.Version = begun.Command, begun.Version
	if sides != nil {
		sides.Tell(r)
	}
	if err != nil {
		r.Warnings = append(r.Warnings, "interrupted: these are the rounds so far")
	}
	return errors.Join(err, finishReport(cmd, r))
}

// measured runs it with its progress on standard error.
func measured(ctx context.Context, cmd *cobra.Command, o packetbench.Options) (*figures.Report, error) {
	progress := newProgress(cmd)
	defer progress.Done()
	o.Progress = func(what string, done, total int) {
		switch {
		case total > 0 && o.For == 0:
			progress.Say("%s, round %d of %d", what, done+1, total)
		case total > 0:
			progress.Say("%s, round %d", what, done+1)
		default:
			progress.Say("%s", what)
		}
	}
	return packetbench.Run(ctx, o)
}

// packetOptions reads the flags.
func packetOptions(cmd *cobra.Command, args []string) (packetbench.Options, error) {
	flags := cmd.Flags()
	o := packetbench.Options{Policy: command.PolicyArgument(args), StateDir: command.StateDir(cmd), For: command.TimeOf(flags, "for")}
	kinds, _ := flags.GetStringSlice("kinds")
	for _, k := range kinds {
		if !slices.Contains(packetbench.Kinds, packetbench.Kind(k)) {
			return o, fmt.Errorf("--kinds: no such kind: %q\nhint: the kinds are %s", k, strings.Join(kindNames(), ", "))
		}
		o.Kinds = append(o.Kinds, packetbench.Kind(k))
	}
	switch family, _ := flags.GetString("family"); family {
	case "":
	case "ipv4":
		o.Families = []addrset.Family{addrset.IPv4}
	case "ipv6":
		o.Families = []addrset.Family{addrset.IPv6}
	default:
		return o, fmt.Errorf("--family must be ipv4 or ipv6, not %q", family)
	}
	switch way, _ := flags.GetString("inject"); way {
	case "auto":
	case "xdp":
		o.Way = measure.ByLiveFrames
	case "ring":
		o.Way = measure.ByPacketRing
	default:
		return o, fmt.Errorf("--inject must be auto, xdp or ring, not %q", way)
	}
	o.Rounds, _ = flags.GetInt("rounds")
	o.Packets, _ = flags.GetInt("packets")
	o.Sources, _ = flags.GetInt("sources")
	o.Flows, _ = flags.GetInt("flows")
	o.Seed, _ = flags.GetUint64("seed")
	for name, limit := range map[string]struct{ value, least, most int }{
		"rounds": {o.Rounds, 1, 1 << 20}, "packets": {o.Packets, 0, 1 << 24},
		"sources": {o.Sources, 1, measure.Sources}, "flows": {o.Flows, 1, 50000},
	} {
		if limit.value < limit.least || limit.value > limit.most {
			return o, fmt.Errorf("--%s must be from %d to %d, not %d", name, limit.least, limit.most, limit.value)
		}
	}
	var err error
	o.Binary, err = theSluice()
	return o, err
}
