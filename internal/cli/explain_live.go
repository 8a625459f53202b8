package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"sluice/internal/backend/trace"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
)

// liveHelp is the part of explain's help that is about --live.
const liveHelp = `
With --live, the packet is also sent through the firewall that is loaded: through a
copy of this network namespace, with all rules of all tools (nftables, iptables over
it and legacy iptables), what their sets hold now, interfaces, addresses, routes and
settings. Nothing reaches the host itself or anybody else, no counter and no limit of
the host's changes, and the copy is gone when the command ends. It shows every chain
and rule that the packet met, and where the two answers differ, who decides otherwise:
another tool, a ban by command, a rule that was changed by hand, another text of the
policy that is loaded. It needs root.`

// addExplainLive adds the flag that asks the loaded firewall too.
func addExplainLive(cmd *cobra.Command) {
	cmd.Flags().Bool("live", false, "send the packet through a copy of this host's loaded firewall too, and compare")
}

// liveHint is what one can do about a loaded firewall that does otherwise than the policy.
func liveHint(cmd *cobra.Command, e *engine.Explained) string {
	here, file := command.HereArguments(cmd), "FILE"
	if name := e.Policy; name != engine.StandardInput {
		file = command.ShellWord(name)
	}
	switch e.Live.Cause {
	case engine.CauseOtherTool:
		return listing(*e.Live.Decider()) + " shows it"
	case engine.CauseNothingLoaded:
		return "sluice apply " + file + here + " loads it"
	case engine.CauseBan:
		return "sluice bans" + here + " shows such bans, sluice unban lifts one"
	case engine.CauseUnknownState:
		return "apply the policy, or name the state that they are of with --state-dir"
	case engine.CauseChanged:
		return "sluice status" + here + " shows it, sluice restore" + here + " puts it back"
	case engine.CauseClosed:
		return "sluice apply " + file + here
	case engine.CauseOtherText:
		return "sluice plan " + file + here + " shows what an apply would change"
	case engine.CauseHostMoved:
		return "sluice sync" + here + " brings it in"
	case engine.CauseHostFixed:
		return "apply the policy again"
	case engine.CauseGrace:
		return "sluice status" + here + " says how long"
	case engine.CauseBug:
		return "sluice verify" + here + " compares all of it; please report what it finds, with the policy"
	}
	return ""
}

// listing is the command that shows the chain of a step.
func listing(s trace.Step) string {
	if s.Legacy {
		return fmt.Sprintf("%s-legacy -t %s -S %s", choice(s.Family == "ip6", "ip6tables", "iptables"), s.Table, s.Chain)
	}
	return fmt.Sprintf("nft -a list chain %s %s %s", s.Family, command.ShellWord(s.Table), command.ShellWord(s.Chain))
}
