package cli

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"sluice/internal/agent/api"
	"sluice/internal/agent/client"
	"sluice/internal/cli/answers"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/prove/explain"
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
var through = byAgent

// worded answers about packets in the words of the commands. Here is the flags that lead a command
// to the host.
type worded struct {
	*engine.Host
	here string
}

// Explain is engine.Host.Explain.
func (w worded) Explain(ctx context.Context, q engine.Explaining) (*engine.Explained, error) {
	q.Words = explain.Words{Fields: answers.PacketFlags, Unban: w.unban}
	return w.Host.Explain(ctx, q)
}

// Query is engine.Host.Query.
func (w worded) Query(ctx context.Context, q engine.Querying) (*engine.Queried, error) {
	q.Called, q.Unban = answers.QueryFlags, w.unban
	return w.Host.Query(ctx, q)
}

// Allow is engine.Host.Allow.
func (w worded) Allow(ctx context.Context, in engine.Allowing) (*engine.Allowed, error) {
	in.Unban = w.unban
	return w.Host.Allow(ctx, in)
}

func (w worded) unban(what string) string { return "sluice unban " + what + w.here }

// byAgent has the agent do the work where one listens.
func byAgent(h *engine.Host, here string) door {
	socket := os.Getenv("SLUICE_SOCKET")
	state, err := filepath.Abs(h.State)
	if socket == "" && err == nil && state == command.DefaultStateDir {
		socket = api.Socket
	}
	if socket == "" || err != nil {
		return worded{h, here}
	}
	return &client.Host{
		Door: worded{h, here}, Socket: socket, Namespace: h.Namespace, Meant: api.Meant{State: state, Wait: h.Wait, Reason: h.By.Reason},
		Told: client.Told{Note: h.Note, Warn: h.Warn, Shout: h.Shout, Progress: h.Progress, Download: h.Download},
	}
}
