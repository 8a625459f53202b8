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
With --live the packet is also sent through the loaded firewall: through a copy of this
network namespace, with all rules of all tools (nftables, iptables-nft and legacy iptables),
the current contents of their sets, interfaces, addresses, routes and settings. Nothing reaches
the host itself or anybody else, no counter or limit of the host changes, and the copy is
deleted when the command ends. It shows every chain and rule that the packet passed and, if the
two answers differ, what decides otherwise: another tool, a ban by command, a rule changed
outside of Sluice, another text of the loaded policy. It needs root.`

// addExplainLive adds the flag that asks the loaded firewall too.
func addExplainLive(cmd *cobra.Command) {
	cmd.Flags().Bool("live", false, "also send the packet through a copy of this host's loaded firewall, and compare")
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
		return "apply the policy, or give --state-dir of the state that loaded them"
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
		return "sluice status" + here + " shows how long"
	case engine.CauseBug:
		return "sluice verify" + here + " compares everything; please report what it finds, with the policy"
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
