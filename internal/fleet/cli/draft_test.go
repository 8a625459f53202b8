package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/fleet/api"
)

// TestDraftCommands: a draft is shown by what it means here, and is written and signed where the
// repository is still what it was made on.
func TestDraftCommands(t *testing.T) {
	t.Setenv("SSH_AUTH_SOCK", "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	repository, keys, controller, line := fleetFolders(t)
	run(t, 0, line...)
	at := func(args ...string) []string { return append(args, "--dir", controller) }
	key := []string{"--repository", repository, "--key", filepath.Join(keys, "policy.pem")}
	base, web := filepath.Join(repository, "parts/10-base.yaml"), filepath.Join(repository, "parts/60-web.yaml")
	const was = "version: 1\ninput: {default: drop, rules: [allow ssh from 198.51.100.0/24]}\n"
	write(t, base, was)
	write(t, filepath.Join(repository, "inventory.yaml"), "version: 1\nhosts:\n  web-1: { labels: {role: web} }\n  db-1: { labels: {role: db} }\n")
	run(t, 0, append([]string{"sign"}, key...)...)
	f := &founded{repository: repository, dir: controller}
	defer f.serve(t)()
	run(t, 0, at("publish", "--repository", repository)...)
	if out, _ := run(t, 0, at("draft")...); out != "there are no drafts\n" {
		t.Error(out)
	}
	client := api.NewClient(controller)
	draft := func(title string, texts map[string]string) string {
		t.Helper()
		d, err := client.CreateDraft(t.Context(), api.NewDraft{Title: title, Texts: texts})
		ok(t, err)
		return d.Id
	}
	id := draft("a\u202eb\x1b[31m", map[string]string{
		"parts/10-base.yaml": strings.Replace(was, "/24]", "/24, allow ntp]", 1), "parts/60-web.yaml": "version: 1\nhosts: role=web\ninput: {rules: [allow https]}\n",
	})
	out, _ := run(t, 0, at("draft")...)
	has(t, out, id, "parts/10-base.yaml and parts/60-web.yaml")
	out, _ = run(t, 0, at("draft", id, "--repository", repository)...)
	has(t, out, "-input: {default: drop, rules: [allow ssh from 198.51.100.0/24]}", "+hosts: role=web", "host web-1: opens tcp/443 and udp/123 to everybody", "host db-1: opens udp/123 to everybody")
	if strings.ContainsAny(out, "\x1b\u202e") {
		t.Errorf("%q", out)
	}
	var said struct {
		ID       string `json:"id"`
		Compared struct{ Opens bool }
	}
	out, _ = run(t, 0, at("draft", id, "--repository", repository, "--json")...)
	if err := json.Unmarshal([]byte(out), &said); err != nil || said.ID != id || !said.Compared.Opens {
		t.Errorf("%v, %+v, %s", err, said, out)
	}
	for _, args := range [][]string{{"draft", "x"}, {"draft", "--into", repository}, {"sign", "x"}} {
		run(t, 2, at(args...)...)
	}
	untouched := func() {
		t.Helper()
		text, err := os.ReadFile(base)
		if _, there := os.Stat(web); err != nil || string(text) != was || there == nil {
			t.Errorf("written: %s, %v", text, err)
		}
	}
	run(t, 0, append(at("sign", id, "--dry-run"), key...)...)
	untouched()
	write(t, base, was+"# somebody else\n")
	_, errOut := run(t, 2, append(at("sign", id, "--yes"), key...)...)
	has(t, errOut, "parts/10-base.yaml: not as in bundle 1, on which draft "+id, "hint: sluice-controller draft "+id+" --into ")
	write(t, base, was)
	untouched()
	out, errOut = run(t, 0, append(at("sign", id, "--yes"), key...)...)
	has(t, out, "host web-1: opens tcp/443 and udp/123", "bundle 2 of example.net", "~ parts/10-base.yaml", "+ parts/60-web.yaml")
	has(t, errOut, "signed bundle 2")
	out, _ = run(t, 0, at("draft", id, "--repository", repository)...)
	has(t, out, "has all of it already")
	run(t, 0, at("publish", "--repository", repository)...)
	out, _ = run(t, 0, at("draft")...)
	has(t, out, "(in bundle 2)")

	// What leads out of the repository is neither read nor written, and a removal is one.
	gone := draft("", map[string]string{"parts/60-web.yaml": ""})
	outside := filepath.Join(t.TempDir(), "60-web.yaml")
	text, err := os.ReadFile(web)
	ok(t, err)
	write(t, outside, string(text))
	ok(t, os.Remove(web))
	ok(t, os.Symlink(outside, web))
	run(t, 2, at("draft", gone, "--into", repository)...)
	ok(t, os.Remove(web))
	write(t, web, string(text))
	out, _ = run(t, 0, at("draft", gone, "--into", repository)...)
	has(t, out, "host web-1: closes tcp/443 to everybody")
	if _, err := os.Stat(web); !os.IsNotExist(err) {
		t.Errorf("a removed part is there: %v", err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}

	// What is not a file of the policy is not taken, whoever says that it is.
	other := draft("", map[string]string{"deploy/site.yaml": "- hosts: all\n", "parts/70-mail.yaml": "version: 1\n"})
	_, errOut = run(t, 2, at("draft", other, "--into", repository)...)
	has(t, errOut, "has deploy/site.yaml, which is not a part of the fleet")
	if _, err := os.Stat(filepath.Join(repository, "deploy")); !os.IsNotExist(err) {
		t.Errorf("it is written: %v", err)
	}
}

// TestSigningByController: a controller signs a draft where fleet.yaml lets it and it has a key,
// and signs nothing else that is in the repository.
func TestSigningByController(t *testing.T) {
	t.Setenv("SSH_AUTH_SOCK", "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	repository, keys, controller, line := fleetFolders(t)
	run(t, 0, line...)
	at := func(args ...string) []string { return append(args, "--dir", controller) }
	key := filepath.Join(keys, "policy.pem")
	base, fleet := filepath.Join(repository, "parts/10-base.yaml"), filepath.Join(repository, "fleet.yaml")
	const was = "version: 1\ninput: {default: drop, rules: [allow ssh from 198.51.100.0/24]}\n"
	write(t, base, was)
	publish := func() {
		t.Helper()
		run(t, 0, "sign", "--repository", repository, "--key", key)
		run(t, 0, at("publish", "--repository", repository)...)
	}
	f := &founded{repository: repository, dir: controller}
	stop := f.serve(t)
	publish()
	client := api.NewClient(controller)
	draft := func(text string) string {
		t.Helper()
		d, err := client.CreateDraft(t.Context(), api.NewDraft{Texts: map[string]string{"parts/10-base.yaml": text}})
		ok(t, err)
		return d.Id
	}
	refused := func(id, why string) {
		t.Helper()
		_, errOut := run(t, 2, at("draft", id, "--roll-out")...)
		has(t, errOut, why)
		if text, err := os.ReadFile(base); err != nil || string(text) != was {
			t.Errorf("%s, %v", text, err)
		}
	}
	open := strings.Replace(was, "/24]", "/24, allow ntp]", 1)
	refused(draft(open), "signing is offline")
	text, err := os.ReadFile(fleet)
	ok(t, err)
	write(t, fleet, string(text)+"signing: controller\n")
	publish()
	refused(draft(open), "without --sign-in")
	stop()

	run(t, 2, at("run", "--sign-in", repository, "--key", filepath.Join(keys, "root-1.pem"), "--listen", "127.0.0.1:0")...)
	defer f.serve(t, "--sign-in", repository, "--key", key)()
	other := filepath.Join(repository, "parts/70-other.yaml")
	write(t, other, "version: 1\ninput: {rules: [allow https]}\n")
	refused(draft(open), "the repository has changes that are in no bundle: +parts/70-other.yaml")
	ok(t, os.Remove(other))
	out, _ := run(t, 0, at("draft", draft(open), "--roll-out")...)
	has(t, out, "bundle 3 is signed, and roll-out 3 has begun")
	if text, err := os.ReadFile(base); err != nil || string(text) != open {
		t.Errorf("%s, %v", text, err)
	}
	is, err := client.Policy(t.Context())
	if err != nil || is.Bundle != 3 || is.Signing != api.SigningController {
		t.Errorf("%+v, %v", is, err)
	}

	// What somebody has signed and not published is not published with a draft.
	write(t, other, "version: 1\ninput: {rules: [allow https]}\n")
	run(t, 0, "sign", "--repository", repository, "--key", key)
	_, errOut := run(t, 2, at("draft", draft(was), "--roll-out")...)
	has(t, errOut, "is not bundle 3, which was published last", "hint: sluice-controller publish")
	if text, err := os.ReadFile(base); err != nil || string(text) != open {
		t.Errorf("%s, %v", text, err)
	}
	run(t, 0, at("publish", "--repository", repository)...)
	out, _ = run(t, 0, at("draft", draft(was), "--roll-out")...)
	has(t, out, "bundle 5 is signed, and roll-out 5 has begun")
}
