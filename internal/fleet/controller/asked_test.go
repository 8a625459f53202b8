package controller

import (
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
)

// TestAsks: a request is said in the words of the command that asks for it, whatever its body is.
func TestAsks(t *testing.T) {
	asked := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct{ operation, path, body, want string }{
		{
			"ban", "/api/v1/bans", `{"for-seconds": 3600, "hosts": "role=web", "reason": "ssh: bad passwords", "entries": [{"what": "203.0.113.9"}]}`,
			`ban 203.0.113.9 --for 1h --hosts role=web -m "ssh: bad passwords"`,
		},
		{
			"ban", "/api/v1/bans", `{"hosts": "role=web and env=prod", "keep-longer": true, "entries": [{"what": "a"}, {"what": "b"}, {"what": "c"}, {"what": "d"}, {"what": "e"}]}`,
			`ban a b c (and 2 more) --hosts "role=web and env=prod" --keep-longer`,
		},
		{"ban", "/api/v1/bans", `{"for-seconds": 9223372036854775807, "entries": [{"what": "a --for 1h\n"}]}`, `ban "a --for 1h\n" --for 2562047h47m16s`},
		{"ban", "/api/v1/bans", ``, "ban"}, // it was refused
		// What others write is read as no flag, and as one word.
		{"ban", "/api/v1/bans", `{"reason": "--hosts=role=test", "entries": [{"what": "203.0.113.9"}]}`, `ban 203.0.113.9 -m "--hosts=role=test"`},
		{"ban", "/api/v1/bans", `{"reason": "a\u2003--hosts\u00a0b\u202e", "entries": [{"what": "203.0.113.9"}]}`, `ban 203.0.113.9 -m "a\u2003--hosts\u00a0b\u202e"`},
		{"revoke", "/api/v1/hosts/web-1/revoke", `{"why": "` + "`x`" + `"}`, "revoke web-1 -m \"`x`\""},
		{"createLink", "/api/v1/links", `{"user": "--role", "role": "viewer"}`, `access link "--role" --role viewer`},
		{
			"allow", "/api/v1/allows", `{"for-seconds": 60, "entries": [{"what": "198.51.100.7", "for-seconds": 604800}, {"what": "198.51.100.8"}]}`,
			"allow 198.51.100.7 198.51.100.8 (each to a service, or for a time, of its own)",
		},
		{"allow", "/api/v1/allows", `{"for-seconds": 60, "entries": [{"what": "198.51.100.7", "for-seconds": 60}, {"what": "198.51.100.8"}]}`, "allow 198.51.100.7 198.51.100.8 --for 1m"},
		{"allow", "/api/v1/allows", `{"entries": [{"what": "198.51.100.7", "service": "ssh", "for-seconds": 604800, "reason": "$(x)"}]}`, `allow 198.51.100.7 ssh --for 7d -m "$(x)"`},
		{"unban", "/api/v1/bans/lift", `{"what": ["203.0.113.0/24"]}`, "unban 203.0.113.0/24"},
		{"disallow", "/api/v1/allows/lift", `{"what": ["203.0.113.9"], "service": "ssh"}`, "disallow 203.0.113.9 ssh"},
		{"publish", "/api/v1/publish", `{"bundle": 7, "not-before": "2026-12-01T05:00:00+01:00"}`, "publish bundle 7 --not-before 2026-12-01T04:00:00Z"},
		{"command", "/api/v1/rollouts/3/resume", `{"why": "fixed"}`, "rollout resume 3 -m fixed"},
		{"revoke", "/api/v1/hosts/web-1/revoke", `{"why": "it's sold"}`, `revoke web-1 -m "it's sold"`},
		{"setLabels", "/api/v1/hosts/web-1/labels", `{"order": "eA=="}`, "publish labels web-1"},
		{
			"putGuest", "/api/v1/guests/vm-1", `{"host": "hv-1", "interface": "tap0", "addresses": ["10.30.0.5", "10.30.0.6"], "labels": {"b": "2", "a": "1"}, "rules": "x"}`,
			"guest put vm-1 a=1 b=2 --host hv-1 --interface tap0 --address 10.30.0.5,10.30.0.6 --rules …",
		},
		{"removeGuest", "/api/v1/guests/vm-1", ``, "guest remove vm-1"},
		{"refreshList", "/api/v1/lists/scanners/refresh", `{"force": true}`, "lists refresh scanners --force"},
		{"undoList", "/api/v1/lists/scanners/undo", ``, "lists undo scanners"},
		{"createToken", "/api/v1/tokens", `{"labels": {"role": "web"}, "uses": 20, "expires": "2026-12-01T01:00:00Z", "approve": true}`, "token create --labels role=web --uses 20 --for 1h --approve"},
		{"createAccess", "/api/v1/access", `{"name": "ci", "role": "admin", "expires": "2027-03-01T00:00:00Z"}`, "access create ci --role admin --for 90d"},
		{"createLink", "/api/v1/links", `{"user": "max", "hosts": "env=test"}`, "access link max --hosts env=test"},
		{"rollOutDraft", "/api/v1/drafts/3f0c52a1b97e44d0/roll-out", `{"why": "a customer"}`, `draft 3f0c52a1b97e44d0 --roll-out -m "a customer"`},
		{"enrol", "/v1/enrol?host=web-1", `{"labels": {"role": "web"}}`, "enrol web-1 --labels role=web"},
		{"gone", "/api/v1/gone", `{}`, "gone"},
	} {
		if got := asks(store.Request{Operation: c.operation, Path: c.path, Body: []byte(c.body), Asked: asked}); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.operation, got, c.want)
		}
	}
}

// TestAsksOfAll: no operation that may want approval is without words of its own.
func TestAsksOfAll(t *testing.T) {
	for _, op := range api.Operations() {
		said := asks(store.Request{Operation: op.ID, Path: "/api/v1/a/b/c"})
		if op.Approve != "" && (said == "command" || strings.ToLower(strings.Fields(said)[0]) != strings.Fields(said)[0]) {
			t.Errorf("%s: %q", op.ID, said)
		}
	}
}
