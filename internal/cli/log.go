package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/engine"
)

func newLog() *cobra.Command {
	var (
		follow bool
		count  int
		chosen = engine.LogChoice{Called: map[string]string{"source": "--src", "service": "--service", "country": "--country", "line": "--line"}}
	)
	cmd := &cobra.Command{
		Use:   "log --follow",
		Short: "Show what is dropped and logged as it happens, with the policy's line",
		Long: `Shows the packets that the policy that runs sends to netlink log group 5171, where it
says "log: netlink": those that match a line with log, and those that a default drops
or rejects. Each has a line: when, which line of the policy, from whom, from which country
by the country data in use, to what, and what the line says. --json has the rest, a value a
line. --src, --service, --country and --line show those alone that are of all of these.

Of a line of the policy 50 packets a second are logged, and of a source and a line 30 a
minute, 10 of them at once, so that one that scans hides nobody. What is left out is dropped
all the same, and counted ("sluice status").

Nothing keeps what was logged before. One program at a time can read the group.
` + filesHelp + `

Exit status: 0 it was stopped, or has shown --count, 2 bad use, or it could not be read.`,
		Example: "  sluice log --follow\n  sluice log --follow --src 203.0.113.7 --service https\n  sluice log --follow --line policy.yaml:22 --count 1 --json | jq .rule",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !follow {
				return errors.New("nothing keeps what was logged before\nhint: --follow shows it as it happens")
			}
			if count < 0 {
				return fmt.Errorf("--count %d is below zero", count)
			}
			h, err := hostOf(cmd)
			if err != nil {
				return err
			}
			ctx, stop := command.Interruptible(cmd)
			defer stop()
			return followLog(ctx, cmd, h, chosen, count)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "show what comes, until interrupted")
	cmd.Flags().IntVar(&count, "count", 0, "end after `N` packets; 0 is never")
	flags := cmd.Flags()
	flags.StringVar(&chosen.Source, "src", "", "show what comes from an `ADDRESS`, a prefix or a range")
	flags.StringVar(&chosen.Service, "service", "", "show what goes to a `SERVICE`, by a name of the policy or as tcp/22")
	flags.StringVar(&chosen.Country, "country", "", "show what comes from a `COUNTRY`, such as NO; of what the host sends, what goes there")
	flags.StringVar(&chosen.Line, "line", "", "show what a `LINE` has logged, such as policy.yaml:22, or 22 of any file")
	return cmd
}

func followLog(ctx context.Context, cmd *cobra.Command, h *engine.Host, chosen engine.LogChoice, count int) error {
	collectSoon()
	now, err := h.Lines()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	out, shown := cmd.OutOrStdout(), 0
	var failed error
	show := func(p engine.Logged) error {
		_, err := fmt.Fprintln(out, loggedText(p))
		return err
	}
	if optionsOf(cmd).json {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		show = func(p engine.Logged) error { return encoder.Encode(p) }
	}
	err = h.Logged(ctx, chosen, func() {
		switch {
		case now.Generation == 0:
			note(cmd, "no policy runs")
		case !now.Netlink:
			note(cmd, "the policy that runs logs nothing here: log: netlink in it does")
		default:
			note(cmd, "reading what generation "+strconv.Itoa(now.Generation)+" logs")
		}
	}, func(p engine.Logged) {
		if failed != nil || count > 0 && shown == count {
			return
		}
		if p.Lost > 0 {
			note(cmd, fmt.Sprintf("%d more were logged and could not be read in time", p.Lost))
		}
		if failed = show(p); failed != nil {
			stop()
			return
		}
		if shown++; shown == count {
			stop()
		}
	})
	return errors.Join(err, failed)
}

// loggedText is a packet in a line of 80 columns or so: a rule that is long has more.
func loggedText(p engine.Logged) string {
	line := p.File + ":" + strconv.Itoa(p.Line)
	if p.Line == 0 {
		line = p.ID
	}
	return fmt.Sprintf("%s  %-16s  %-15s  %-2s  %-9s  %s", p.Time.Local().Format("15:04:05"), line, p.Source, p.Country, loggedService(p), p.Rule)
}

func loggedService(p engine.Logged) string {
	switch {
	case p.ICMP != "":
		return p.Protocol + " " + p.ICMP
	case p.Port != 0:
		return p.Protocol + "/" + strconv.Itoa(int(p.Port))
	}
	return p.Protocol
}
