package controller

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// policies is a fleet of three hosts, of two classes, whose bundle 1 has a list and a live one.
func policies(t *testing.T) *fleet {
	t.Helper()
	f := newFleet(t, "example.net")
	f.text += `sets:
  web: {hosts: role=web, within: [203.0.113.0/24]}
access: [{ who: "user:otto", role: viewer, hosts: role=db }, { who: "user:erika", role: viewer }]
`
	f.addresses = map[string][]netip.Addr{
		"web-1": {netip.MustParseAddr("203.0.113.5"), netip.MustParseAddr("198.51.100.5")}, // of which one is outside
		"web-2": {netip.MustParseAddr("203.0.113.6")},
		"db-1":  {netip.MustParseAddr("203.0.113.7")},
	}
	for host, role := range map[string]string{"web-1": "web", "web-2": "web", "db-1": "db"} {
		_, err := f.join(host, f.token(map[string]string{"role": role}, 1))
		ok(t, err)
		address := f.addresses[host][0]
		facts := fmt.Sprintf(`{"version":1,"known":true,"interfaces":[{"name":"lo","index":1,"addresses":["127.0.0.1/8"],"kind":"loopback","up":true,"mtu":65536},{"name":"e","index":2,"addresses":["%s/24"],"kind":"device","up":true,"mtu":1500}],"default-route":["e"],"local":["127.0.0.0/8","%[1]s/32"]}`, address)
		_, err = f.controller.Store.PutFacts(t.Context(), host, []byte(facts))
		ok(t, err)
	}
	signed, err := f.repository.Sign(trust.Signing{
		Level: 1, File: f.file("fleet.yaml", "", f.text), Parts: []trust.File{
			f.file("parts/10-base.yaml", "", "version: 1\nsets: {banned: {file: ../banned.txt}}\nban: [banned]\ninput: {default: drop, rules: [allow ssh from 198.51.100.0/24]}\n"),
			f.file("parts/50-db.yaml", "role=db", "version: 1\nhosts: role=db\ninput: {rules: [allow postgresql from web]}\n"),
			f.file("parts/60-web.yaml", "role=web", "version: 1\nhosts: role=web\ninput: {rules: [allow https]}\n"),
		},
		Lists: []trust.File{f.file("banned.txt", "", "192.0.2.1\n")},
	}, time.Now(), f.policy)
	ok(t, err)
	_, err = f.give(signed.Bundle.Number)
	ok(t, err)
	f.until("the facts are known", func() bool {
		is, err := f.client.Inventory(t.Context())
		ok(t, err)
		return len(is.Hosts) == 3 && !slices.ContainsFunc(is.Hosts, func(h api.InventoryHost) bool { return h.Facts == "" })
	})
	ok(t, f.controller.refresh(t.Context()))
	return f
}

// briefs are the changes of a diff in words.
func briefs(d *api.PolicyDiff) (all []string) {
	for _, c := range d.Changes {
		for _, l := range c.Brief {
			all = append(all, c.For+": "+l.Text)
		}
	}
	return all
}

// findings are what a check found, by their codes, places and words.
func findings(t *testing.T, c *api.PolicyChecked) (all []string) {
	t.Helper()
	for _, text := range c.Findings {
		var f struct {
			Code, File, Message string
			Line                int
			Classes             []string
		}
		ok(t, json.Unmarshal(text, &f))
		all = append(all, fmt.Sprint(f.Code, " ", f.File, ":", f.Line, " ", f.Message, " ", f.Classes))
	}
	return all
}

// TestPolicyTexts: the texts are those of the newest bundle; who has a role for some hosts is told
// of those that are for these.
func TestPolicyTexts(t *testing.T) {
	t.Parallel()
	empty := newFleet(t, "example.net")
	if is, err := empty.client.Policy(t.Context()); err != nil || is.Bundle != 0 || len(is.Files) != 0 {
		t.Errorf("before the first bundle: %+v, %v", is, err)
	}
	f := policies(t)
	is, err := f.client.Policy(t.Context())
	ok(t, err)
	var names []string
	for _, file := range is.Files {
		names = append(names, fmt.Sprint(file.Name, " ", file.Selector, " ", file.Hosts))
	}
	if got := strings.Join(names, ", "); got != "fleet.yaml  3, parts/10-base.yaml  3, parts/50-db.yaml role=db 1, parts/60-web.yaml role=web 2" {
		t.Error(got)
	}
	if is.Bundle != 1 || is.Signing != "offline" || is.Files[0].Text != f.text {
		t.Errorf("%+v", is)
	}
	otto, err := f.logged("otto").Policy(t.Context())
	ok(t, err)
	if len(otto.Files) != 3 || otto.Files[0].Hosts != 1 || otto.Files[2].Name != "parts/50-db.yaml" {
		t.Errorf("%+v", otto)
	}
	if text := otto.Files[0].Text; !otto.Files[0].Cut || !strings.Contains(f.text, "user:otto") || strings.Contains(text, "user:") || !strings.Contains(text, accessCut) || is.Files[0].Cut {
		t.Errorf("who may do what is told to whoever has a role for some hosts: %q", text)
	}
}

// TestPolicyCheck: what is wrong with a draft is said by class, with places in the files that the
// caller gave.
func TestPolicyCheck(t *testing.T) {
	t.Parallel()
	f := policies(t)
	check := func(c *api.Client, texts map[string]string) *api.PolicyChecked {
		t.Helper()
		out, err := c.CheckPolicy(t.Context(), api.PolicyDraft{Texts: texts})
		ok(t, err)
		return out
	}
	is := check(f.client, map[string]string{})
	if got := findings(t, is); len(got) != 0 || len(is.Classes) != 2 || is.Bundle != 1 {
		t.Errorf("%q, %+v", got, is.Classes)
	}
	if is.Classes[0].Name != "host db-1" || is.Classes[1].Name != "2 web hosts" || !slices.Equal(is.Classes[1].Hosts, []string{"web-1", "web-2"}) {
		t.Errorf("%+v", is.Classes)
	}
	for _, test := range []struct {
		file, text, want string
	}{
		{"parts/50-db.yaml", "version: 1\nhosts: role=db\ninput: {rules: [allow htpp]}\n", `policy parts/50-db.yaml:3 unknown service "htpp"`},
		{"parts/60-web.yaml", "version: 1\nhosts: role=web\ninput: {rules: [allow https from nobody]}\n", `policy parts/60-web.yaml:3 unknown`},
		{"parts/60-web.yaml", "version: 1\nhosts: role=web\ninput: {rules: [allow https, allow https from web]}\n", `[2 web hosts]`},
		{"parts/60-web.yaml", "version: 1\nhosts: role=web\ninput: {rules: [allow https]}\nexpect: [deny https from any]\n", `expectation parts/60-web.yaml:4`},
		{"parts/70-mail.yaml", "version: 1\nhosts: role=mail\n", `idle-part parts/70-mail.yaml:2 no host has this part []`},
		{"parts/10-base.yaml", "", "policy "},
		{"banned.txt", "192.0.2.1\nnonsense\n", "policy banned.txt:2 "},
		{"fleet.yaml", strings.Replace(f.text, "parts/*.yaml", "parts/50*.yaml", 1), "no-part inventory.yaml:1 no part applies to host web-1"},
		// No file of the machine, and no list of another one, is read for whoever asks.
		{"parts/60-web.yaml", "version: 1\nhosts: role=web\nsets: {x: {file: /etc/passwd}}\ninput: {rules: [allow https from x]}\n", "cannot read the set file"},
		{"parts/60-web.yaml", "version: 1\nhosts: role=web\nsets: {x: {file: ../../../../../etc/passwd}}\ninput: {rules: [allow https from x]}\n", "does not exist"},
		{"parts/60-web.yaml", "version: 1\nhosts: role=web\nsets: {x: {url: \"https://lists.example.net/x.txt\", refresh: 1h}}\ninput: {rules: [allow https from x]}\n", "https://lists.example.net/x.txt"},
	} {
		got := findings(t, check(f.client, map[string]string{test.file: test.text}))
		if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, test.want) }) {
			t.Errorf("%s: %q has no %q", test.text, got, test.want)
		}
		if text := strings.Join(got, "\n"); strings.Contains(text, "root:") {
			t.Errorf("%s: %s", test.text, text)
		}
	}
	mail := map[string]string{"parts/70-mail.yaml": "version: 1\nhosts: role=mail\n"}
	if is := check(f.logged("otto"), mail); len(findings(t, is)) != 0 || len(is.Classes) != 1 || is.Classes[0].Name != "host db-1" {
		t.Errorf("who sees one host: %q, %+v", findings(t, is), is.Classes)
	}
	for _, path := range []string{"", "/etc/passwd", "../x.yaml", "a/../b.yaml", ".git/config"} {
		if _, err := f.client.CheckPolicy(t.Context(), api.PolicyDraft{Texts: map[string]string{path: "x"}}); kind(err) != wire.KindBadRequest {
			t.Errorf("%q: %v", path, err)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(f.dir, "lists")); err == nil {
		t.Errorf("something was kept: %v", entries)
	}
}

// TestPolicyDiff: what a draft opens and closes is said for those hosts for which it does, with the
// stages by which it would be rolled out.
func TestPolicyDiff(t *testing.T) {
	t.Parallel()
	f := policies(t)
	diff := func(c *api.Client, texts map[string]string) *api.PolicyDiff {
		t.Helper()
		out, err := c.DiffPolicy(t.Context(), api.PolicyDraft{Texts: texts})
		ok(t, err)
		return out
	}
	if d := diff(f.client, map[string]string{}); d.Opens || len(d.Changes) != 0 || d.Unchanged != 3 {
		t.Errorf("%+v", d)
	}
	web := map[string]string{"parts/60-web.yaml": "version: 1\nhosts: role=web\ninput: {rules: [allow https, allow smtp from 203.0.113.0/25]}\n"}
	d := diff(f.client, web)
	if got := briefs(d); !slices.Equal(got, []string{"2 web hosts: opens tcp/25 to 203.0.113.0/25"}) || !d.Opens || d.Unchanged != 1 || d.Bundle != 1 {
		t.Errorf("%q, %+v", got, d)
	}
	if d.Changes[0].Differences == nil || !slices.Equal(d.Changes[0].Hosts, []string{"web-1", "web-2"}) {
		t.Errorf("%+v", d.Changes)
	}
	if got := fmt.Sprint(d.Stages); got != "[{2 1 per class} {2 5%} {2 25%} {3 100%}]" {
		t.Error(got)
	}
	if got := briefs(diff(f.client, map[string]string{"banned.txt": "192.0.2.1\n198.51.100.0/25\n"})); !slices.Contains(got, "2 web hosts: closes tcp/22 and tcp/443 to 198.51.100.0/25") || !slices.Contains(got, "host db-1: closes tcp/22 to 198.51.100.0/25") {
		t.Errorf("by a list: %q", got)
	}
	otto := f.logged("otto")
	if d := diff(otto, web); d.Opens || d.Unchanged != 1 || strings.Contains(fmt.Sprint(*d), "web") {
		t.Errorf("who sees one host: %+v", d)
	}
	_, err := f.client.DiffPolicy(t.Context(), api.PolicyDraft{Texts: map[string]string{"parts/60-web.yaml": "version: 1\nhosts: role=web\ninput: {rules: [allow htpp]}\n"}})
	if kind(err) != wire.KindBadRequest || !strings.Contains(err.Error(), "parts/60-web.yaml:3:23: unknown service") {
		t.Errorf("a draft with errors: %v", err)
	}
}

// TestDrafts: a draft is kept with what it changes, under the id of its content, until its owner or
// an admin removes it; who has a role for some hosts changes these alone.
func TestDrafts(t *testing.T) {
	t.Parallel()
	f := policies(t)
	token := func(name string, role api.Role, hosts string) *api.Client {
		t.Helper()
		secret, _, err := f.access(f.client, name, role, hosts)
		ok(t, err)
		return f.elsewhere(secret)
	}
	all, db, viewer := token("all", api.Operator, ""), token("db", api.Operator, "role=db"), token("viewer", api.Viewer, "")
	web := "version: 1\nhosts: role=web\ninput: {rules: [allow https, allow smtp]}\n"
	same := "version: 1\nhosts: role=db\ninput: {rules: [allow postgresql from web]}\n"
	d, err := all.CreateDraft(t.Context(), api.NewDraft{Title: "mail", Texts: map[string]string{"parts/60-web.yaml": web, "parts/50-db.yaml": same, "parts/70.yaml": "version: 1\n", "banned.txt": ""}})
	if kind(err) != wire.KindBadRequest || !strings.Contains(err.Error(), "banned.txt") {
		t.Errorf("a draft with errors: %+v, %v", d, err)
	}
	d, err = all.CreateDraft(t.Context(), api.NewDraft{Title: "mail", Texts: map[string]string{"parts/60-web.yaml": web, "parts/50-db.yaml": same, "parts/70.yaml": "version: 1\n"}})
	ok(t, err)
	if got := fmt.Sprint(d.Title, d.By, d.Bundle, d.Opens, d.Summary, len(d.Files), d.Files[0].Name, d.Files[0].Change, d.Files[1].Name, d.Files[1].Change, d.Published); got != "mailtoken:all1 true [2 web hosts: opens tcp/25 to all but banned] 2parts/60-web.yamlchangedparts/70.yamladded0" {
		t.Error(got)
	}
	if len(d.Id) != 32 { // of 128 bits two texts with one id are not found
		t.Errorf("the id %s", d.Id)
	}
	again, err := all.CreateDraft(t.Context(), api.NewDraft{Title: "once more", Texts: map[string]string{"parts/60-web.yaml": web, "parts/70.yaml": "version: 1\n"}})
	if err != nil || again.Id != d.Id || again.Title != "mail" {
		t.Errorf("%+v, %v", again, err)
	}
	got, err := viewer.Draft(t.Context(), d.Id)
	if err != nil || got.Texts["parts/60-web.yaml"] != web || len(got.Texts) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	for what, err := range map[string]error{
		"a viewer drafts": func() error {
			_, err := viewer.CreateDraft(t.Context(), api.NewDraft{Texts: map[string]string{"parts/80.yaml": "version: 1\n"}})
			return err
		}(),
		"a viewer removes": viewer.RemoveDraft(t.Context(), d.Id),
		"fleet.yaml by some": func() error {
			_, err := db.CreateDraft(t.Context(), api.NewDraft{Texts: map[string]string{"fleet.yaml": f.text + "# x\n"}})
			return err
		}(),
		"of others": func() error {
			_, err := db.CreateDraft(t.Context(), api.NewDraft{Texts: map[string]string{"parts/60-web.yaml": web}})
			return err
		}(),
		"of all": func() error {
			_, err := db.CreateDraft(t.Context(), api.NewDraft{Texts: map[string]string{"parts/70.yaml": "version: 1\ninput: {rules: [allow ntp]}\n"}})
			return err
		}(),
	} {
		if kind(err) != wire.KindRole {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, draft := range map[string]api.NewDraft{
		"nothing":      {Texts: map[string]string{}},
		"no change":    {Texts: map[string]string{"parts/50-db.yaml": same}},
		"a long title": {Title: strings.Repeat("x", 201), Texts: map[string]string{"parts/60-web.yaml": web}},
		"a bad path":   {Texts: map[string]string{".git/hooks/x.txt": "x"}},
	} {
		if _, err := all.CreateDraft(t.Context(), draft); kind(err) != wire.KindBadRequest {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := db.Draft(t.Context(), d.Id); kind(err) != wire.KindNotFound {
		t.Errorf("a draft of others: %v", err)
	}
	own, err := db.CreateDraft(t.Context(), api.NewDraft{Texts: map[string]string{"parts/50-db.yaml": "version: 1\nhosts: role=db\ninput: {rules: [allow postgresql]}\n"}})
	ok(t, err)
	count := func(c *api.Client) int {
		t.Helper()
		is, err := c.Drafts(t.Context())
		ok(t, err)
		return len(is.Drafts)
	}
	if count(db) != 1 || count(all) != 2 || count(viewer) != 2 {
		t.Errorf("%d, %d, %d", count(db), count(all), count(viewer))
	}
	if err := all.RemoveDraft(t.Context(), own.Id); kind(err) != wire.KindRole {
		t.Errorf("an operator removes another's: %v", err)
	}
	ok(t, db.RemoveDraft(t.Context(), own.Id))
	ok(t, f.client.RemoveDraft(t.Context(), d.Id))
	if err := f.client.RemoveDraft(t.Context(), d.Id); kind(err) != wire.KindNotFound || count(all) != 0 {
		t.Errorf("%v", err)
	}
	for what, n := range map[string]int{"draft.create": 2, "draft.remove": 2} {
		if got := f.audited(what); got != n {
			t.Errorf("%s: %d", what, got)
		}
	}
}

// TestPolicyOfOthers: who has a role for some hosts finds no addresses of others by sets of their own.
func TestPolicyOfOthers(t *testing.T) {
	t.Parallel()
	f := policies(t)
	otto, db := f.logged("otto"), "version: 1\nhosts: role=db\ninput: {rules: [allow smtp from x]}\n"
	with := api.PolicyDraft{Texts: map[string]string{"fleet.yaml": strings.Replace(f.text, "sets:", "sets:\n  x: {hosts: role=web, within: [0.0.0.0/0]}", 1), "parts/50-db.yaml": db}}
	if _, err := otto.DiffPolicy(t.Context(), with); kind(err) != wire.KindRole {
		t.Errorf("a diff: %v", err)
	}
	if _, err := otto.CheckPolicy(t.Context(), with); kind(err) != wire.KindRole {
		t.Errorf("a check: %v", err)
	}
	if _, err := f.client.DiffPolicy(t.Context(), with); err != nil {
		t.Error(err)
	}
	with.Texts = map[string]string{"fleet.yaml": f.text, "parts/50-db.yaml": strings.Replace(db, " x", " web", 1)}
	if d, err := otto.DiffPolicy(t.Context(), with); err != nil || len(d.Changes) != 1 {
		t.Errorf("fleet.yaml as it is: %+v, %v", d, err)
	}
}
