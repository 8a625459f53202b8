package cli

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"sluice/internal/agent/api"
	"sluice/internal/agent/client"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
)

// door is what commands ask of a host.
type door = client.Door

// doorOf is what a command asks.
func doorOf(cmd *cobra.Command) (door, error) {
	h, err := hostOf(cmd)
	if err != nil {
		return nil, err
	}
	return through(h, command.HereArguments(cmd)), nil
}

// through is who does the work for the commands of a host; tests put another there. Here
// is the flags that lead a command to the host.
var through = func(h *engine.Host, here string) door { return byAgent(h) }

// byAgent has the agent do the work where one listens.
func byAgent(h *engine.Host) door {
	socket := os.Getenv("SLUICE_SOCKET")
	state, err := filepath.Abs(h.State)
	if socket == "" && err == nil && state == command.DefaultStateDir {
		socket = api.Socket
	}
	if socket == "" || err != nil {
		return h
	}
	return &client.Host{
		Door: h, Socket: socket, Namespace: h.Namespace, Meant: api.Meant{State: state, Wait: h.Wait, Reason: h.By.Reason},
		Told: client.Told{Note: h.Note, Warn: h.Warn, Shout: h.Shout, Progress: h.Progress, Download: h.Download},
	}
}
