package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/base/selector"
	"sluice/internal/engine"
	"sluice/internal/language/policy"
)

func addLabels(cmd *cobra.Command) {
	cmd.Flags().String("labels", "", "read FILE as the policy of a fleet, for a host with the labels `NAME=VALUE,...`")
}

func forLabels(cmd *cobra.Command) bool { return cmd.Flags().Changed("labels") }

// loadPolicy reads FILE, for the host that --labels reports.
func loadPolicy(cmd *cobra.Command, file string) (*policy.Policy, error) {
	if !forLabels(cmd) {
		return engine.Load(cmd.InOrStdin(), file)
	}
	if file == engine.StandardInput {
		return nil, errors.New("--labels needs the name of a fleet's file\nhint: its parts are in the same directory")
	}
	text, _ := cmd.Flags().GetString("labels")
	v := &policy.View{Labels: map[string]string{}}
	for _, label := range strings.Split(text, ",") {
		if text == "" {
			break // a host without labels
		}
		name, value, _ := strings.Cut(strings.TrimSpace(label), "=")
		_, twice := v.Labels[name]
		switch err := selector.CheckLabel(name, value); {
		case twice:
			return nil, fmt.Errorf("--labels has %q twice", name)
		case name == "host":
			v.Host = value
		case err != nil:
			return nil, fmt.Errorf("--labels has %q: %w\nhint: write --labels role=web,env=prod", label, err)
		default:
			v.Labels[name] = value
		}
	}
	return policy.Reading{View: v}.Load(file)
}
