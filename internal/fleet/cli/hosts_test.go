package cli

import (
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/rollout"
)

// Reasons that fill more than a row stand beneath it, and no line of them passes for a row.
func TestHostsWithReasons(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	var out strings.Builder
	printHosts(&out, &api.Hosts{Proved: 1, Hosts: []api.Host{
		{Host: "db-1", State: api.Proved, Running: 4, Desired: 4, Since: now.Add(-time.Minute)},
		{Host: "mail-1", State: api.Offline, Running: 4, Desired: 5, Since: now, Reason: "not heard from for 2h"},
		{Host: "web-1", State: api.Drift, Running: 4, Desired: 4, Since: now, Reason: strings.Repeat("meant drop ", 9) + "\nweb-9  proved"},
	}}, now)
	want := `db-1    proved   bundle 4      for 1m
mail-1  offline  bundle 4 → 5  for 0s  not heard from for 2h
web-1   drift    bundle 4      for 0s
    ` + strings.Repeat("meant drop ", 9) + `
    web-9  proved
1 of 3 hosts proved
`
	if out.String() != want {
		t.Errorf("%s", &out)
	}
}

func TestRolloutWithReasons(t *testing.T) {
	r := &rollout.Rollout{ID: 3, Bundle: 4, State: rollout.State{
		Phase: rollout.Reverted, Reason: "1 of 1 canary failed, and the roll-out halts at 1: web-1: it refused the bundle: parts/50-web.yaml:3:33: unknown set …; 1 host back",
		Hosts: map[string]rollout.Host{
			"web-1": {State: rollout.Refused, Failed: true, Reason: "it refused the bundle: parts/50-web.yaml:3:33: unknown set\n    input: {}\nroll-out 4", Evidence: []string{"unknown set", "probe"}},
			"web-2": {State: rollout.Confirmed},
		},
	}}
	var out strings.Builder
	printRollout(&out, r)
	_, got, _ := strings.Cut(out.String(), "\n")
	want := `  1 of 1 canary failed, and the roll-out halts at 1: web-1: it refused the bundle: parts/50-web.yaml:3:33: unknown set …; 1 host back
  2 hosts: 1 confirmed, 1 refused
  failed web-1: it refused the bundle: parts/50-web.yaml:3:33: unknown set
        input: {}
    roll-out 4
    probe
`
	if got != want {
		t.Errorf("%s", got)
	}
}
