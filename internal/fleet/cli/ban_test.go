package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/fleet/api"
)

// TestBanCommands are those of bans and allows, against a controller that runs.
func TestBanCommands(t *testing.T) {
	f := found(t)
	defer f.serve(t)()
	at := func(args ...string) []string { return append(args, "--dir", f.dir) }
	token, _ := run(t, 0, at("token", "create", "--repository", f.repository, "--labels", "role=web")...)
	enrol(t, "web-1", token)
	if _, errText := run(t, 2, at("ban", "203.0.113.7")...); !strings.Contains(errText, "no bundle is published yet") {
		t.Error(errText)
	}
	f.sign(t, map[string]string{
		"fleet.yaml":         "version: 1\nfleet: example.net\nparts: [parts/*.yaml]\nbans: {for: 1d}\nexceptions: {who: [198.51.100.0/24], longest: 8h}\n",
		"parts/10-base.yaml": "version: 1\ninput: {default: drop}\n",
	})
	run(t, 0, at("publish", "--repository", f.repository)...)

	shown, errText := run(t, 0, at("ban", "203.0.113.7", "--for", "1h", "-m", "ssh: 40 bad passwords", "--hosts", "role = web", "--wait")...)
	for _, want := range []string{"banned 203.0.113.7 on hosts with role=web until ", "enforced and proved on 0 of 1 host", "web-1  offline  not connected; it gets this when it is back"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not in %s", want, shown)
		}
	}
	if !strings.Contains(errText, "enforced and proved on 0 of 1 host") {
		t.Error(errText)
	}
	shown, _ = run(t, 1, at("ban", "203.0.112.0/22", "203.0.113.8", "2001:db8::/48")...)
	if !strings.Contains(shown, "banned 2 addresses, prefixes and ranges") || !strings.Contains(shown, "refused 203.0.112.0/22: fleet.yaml:4:1: ") {
		t.Error(shown)
	}
	if shown, _ := run(t, 0, at("ban", "203.0.113.7", "--for", "1m", "--hosts", "role=web", "--keep-longer")...); shown != "unchanged: 1\n" {
		t.Error(shown)
	}
	if shown, _ := run(t, 1, at("ban", "203.0.113.7", "--for", "2d")...); !strings.Contains(shown, "for at most 1d") {
		t.Error(shown)
	}
	for _, wrong := range [][]string{{"ban", "nowhere"}, {"ban", "203.0.113.7", "--hosts", "role="}, {"ban", "203.0.113.7", "--for", "0s"}, {"bans", "0123"}, {"allows", "0123"}} {
		run(t, 2, at(wrong...)...)
	}

	shown, _ = run(t, 0, at("bans")...)
	rows := strings.Split(strings.TrimSpace(shown), "\n")
	if len(rows) != 4 || !strings.Contains(rows[1], "203.0.113.7") || !strings.Contains(rows[1], "role=web  0 of 1") || !strings.Contains(rows[3], "2001:db8::/48") {
		t.Error(shown)
	}
	var all []api.Holding
	shown, _ = run(t, 0, at("bans", "203.0.113.7/32", "--json")...)
	if err := json.Unmarshal([]byte(shown), &all); err != nil || len(all) != 1 || all[0].Reason != "ssh: 40 bad passwords" {
		t.Fatalf("%v: %s", err, shown)
	}
	shown, _ = run(t, 0, at("bans", all[0].Id)...)
	if !strings.Contains(shown, "203.0.113.7 on hosts with role=web until ") || !strings.Contains(shown, ": ssh: 40 bad passwords") || !strings.Contains(shown, "web-1  offline") {
		t.Error(shown)
	}
	if shown, _ := run(t, 1, at("unban", "203.0.113.0/24", "192.0.2.1", "-m", "it was us")...); shown != "lifted 2 bans\nno ban of the fleet lies within 192.0.2.1\n" {
		t.Error(shown)
	}

	shown, _ = run(t, 0, at("allow", "198.51.100.7", "ssh", "--for", "2h")...)
	if !strings.Contains(shown, "allowed 198.51.100.7 ssh until ") {
		t.Error(shown)
	}
	for address, why := range map[string]string{"203.0.113.7": "not an address that", "198.51.100.8": "needs an end"} {
		line := at("allow", address, "ssh")
		if why == "not an address that" {
			line = append(line, "--for", "1h")
		}
		if shown, _ := run(t, 1, line...); !strings.Contains(shown, why) {
			t.Error(shown)
		}
	}
	if shown, _ := run(t, 0, at("allows")...); !strings.Contains(shown, "198.51.100.7 ssh") {
		t.Error(shown)
	}
	if shown, _ := run(t, 1, at("disallow", "198.51.100.7", "https")...); shown != "no exception of the fleet lies within 198.51.100.7\n" {
		t.Error(shown)
	}
	run(t, 0, at("disallow", "198.51.100.7", "ssh")...)
	if shown, _ := run(t, 0, at("allows")...); shown != "the fleet has no allows\n" {
		t.Error(shown)
	}

	lines := filepath.Join(t.TempDir(), "lines")
	ok(t, os.WriteFile(lines, []byte("203.0.113.1 for 10m scanner # of today\n203.0.113.2\n"), 0o600))
	in, err := os.Open(lines)
	ok(t, err)
	defer in.Close()
	root := Root()
	root.SetIn(in)
	root.SetArgs(at("ban", "-", "-m", "others"))
	ok(t, root.ExecuteContext(t.Context()))
	shown, _ = run(t, 0, at("bans", "203.0.113.0/24")...)
	if !strings.Contains(shown, "  scanner") || !strings.Contains(shown, "  others") {
		t.Error(shown)
	}
	if shown, _ := run(t, 0, at("audit", "list")...); !strings.Contains(shown, "unban") || !strings.Contains(shown, "disallow") {
		t.Error(shown)
	}
}
