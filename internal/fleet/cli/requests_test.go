package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
)

// TestRequestCommands: what waits for a second person is listed, approved and refused.
func TestRequestCommands(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	f := found(t)
	defer f.serve(t)()
	at := func(args ...string) []string { return append(args, "--dir", f.dir) }
	f.sign(t, map[string]string{
		"fleet.yaml":         "version: 1\nfleet: example.net\nparts: [parts/*.yaml]\nbans: {for: 1d}\napprove: [ban, publish, access, token]\n",
		"parts/10-base.yaml": "version: 1\ninput: {default: drop}\n",
	})
	run(t, 0, at("publish", "--repository", f.repository)...)
	if out, _ := run(t, 0, at("requests")...); out != "nothing waits for approval\n" {
		t.Error(out)
	}
	for _, line := range [][]string{{"requests", "x"}, {"approve", "x"}, {"refuse", "x"}} {
		if _, errText := run(t, 2, at(line...)...); !strings.Contains(errText, "hint: sluice-controller requests --all lists them") {
			t.Errorf("%v: %s", line, errText)
		}
	}
	out, errText := run(t, 1, at("ban", "203.0.113.7", "-m", "a\u202eb\x1b[31m<b>")...)
	if out != "" || !strings.Contains(errText, "it is not done yet: request ") || !strings.Contains(errText, "hint: somebody else approves it with sluice-controller approve ") {
		t.Error(out, errText)
	}
	var all api.Requests
	out, _ = run(t, 0, at("requests", "--json")...)
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all.Requests) != 1 {
		t.Fatal(err, out)
	}
	id := all.Requests[0].Id
	if out, _ = run(t, 0, at("requests")...); !strings.Contains(out, id+"  waiting  operator:") || !strings.Contains(out, `  ban 203.0.113.7 -m "a`) {
		t.Error(out)
	}
	if out, _ = run(t, 0, at("requests", id)...); !strings.Contains(out, `      "what": "203.0.113.7"`) || !strings.Contains(out, "  ban 203.0.113.7 -m \"a") || !strings.Contains(out, "  POST /api/v1/bans\n") || strings.ContainsAny(out, "\x1b\u202e") {
		t.Errorf("%q", out)
	}
	if _, errText = run(t, 2, at("approve", id)...); !strings.Contains(errText, "has asked for this") || !strings.Contains(errText, "hint: if there is nobody else, --alone") {
		t.Error(errText)
	}
	if out, _ = run(t, 0, at("approve", id, "--alone", "-m", "at night")...); !strings.Contains(out, ": done ban by operator:") || !strings.Contains(out, ", alone at ") || !strings.Contains(out, ": at night\n") {
		t.Error(out)
	}
	if out, _ = run(t, 0, at("bans")...); !strings.Contains(out, "203.0.113.7") {
		t.Error(out)
	}

	// Who waits has the answer when somebody has approved it, or refused it.
	decide := func(what string, flags ...string) {
		for {
			is, err := api.NewClient(f.dir).Requests(t.Context(), false)
			if err == nil && len(is.Requests) == 1 {
				var o, e bytes.Buffer
				command.Run(Root(), at(append([]string{what, is.Requests[0].Id}, flags...)...), nil, &o, &e)
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	go decide("approve", "--alone")
	out, errText = run(t, 0, at("ban", "203.0.113.8", "--wait")...)
	if !strings.Contains(out, "banned 203.0.113.8 until ") || !strings.Contains(errText, " waits for the approval of a second person until ") {
		t.Error(out, errText)
	}
	go decide("refuse", "-m", "not today")
	if _, errText = run(t, 1, at("publish", "--repository", f.repository, "--wait")...); !strings.Contains(errText, "refused request ") || !strings.Contains(errText, ": \"not today\"\n") {
		t.Error(errText)
	}
	if out, _ = run(t, 0, at("requests", "--all")...); strings.Count(out, " done ") != 2 || strings.Count(out, " refused ") != 1 || !strings.Contains(out, "  publish bundle 1\n") {
		t.Error(out)
	}

	// What makes a secret says it, since nobody can afterwards.
	for _, line := range [][]string{{"access", "create", "ci", "--role", "viewer"}, {"access", "link", "max", "--role", "viewer"}, {"token", "create", "--repository", f.repository}} {
		out, errText = run(t, 1, at(line...)...)
		if len(strings.TrimSpace(out)) < 40 || !strings.Contains(errText, "waits for the approval") {
			t.Errorf("%v: %s%s", line, out, errText)
		}
	}

	// A list of several parts is as many requests.
	var many strings.Builder
	for i := range 10_001 {
		fmt.Fprintf(&many, "203.0.%d.%d for 1h %s\n", 100+i/250, i%250, strings.Repeat("a long reason ", 10))
	}
	var o, e bytes.Buffer
	if status := command.Run(Root(), at("ban", "-"), strings.NewReader(many.String()), &o, &e); status != 1 || strings.Count(e.String(), "it is not done yet: request ") != 2 {
		t.Errorf("%d %s%.2000s", status, &o, &e)
	}
}
