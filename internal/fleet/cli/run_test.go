package cli

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// repository founds a fleet in two folders, and signs what is in the first.
type founded struct {
	repository, dir string
	trust           *trust.Repository
	policy          trust.Signer
}

func found(t *testing.T) *founded {
	t.Helper()
	key := func() trust.PrivateKey {
		k, err := trust.NewKey()
		ok(t, err)
		return k
	}
	f := &founded{repository: t.TempDir(), dir: t.TempDir(), policy: key()}
	root, now := key(), time.Now()
	ca, caKey, err := trust.NewCA("example.net", now)
	ok(t, err)
	is := trust.Founding{
		Fleet: "example.net", CA: ca,
		Root:   trust.RoleKeys{Keys: []ed25519.PublicKey{root.Public()}, Threshold: 1},
		Policy: trust.RoleKeys{Keys: []ed25519.PublicKey{f.policy.Public()}, Threshold: 1},
	}
	for role, keys := range map[string]*[]ed25519.PublicKey{"snapshot": &is.Snapshot, "timestamp": &is.Timestamp, "live": &is.Live} {
		k := key()
		*keys = []ed25519.PublicKey{k.Public()}
		ok(t, trust.AddOnlineKey(f.dir, role, k))
	}
	f.trust, err = trust.Found(f.repository, is, now, root)
	ok(t, err)
	ok(t, trust.NewOnline(f.dir, f.trust.Root()))
	certificate, certificateKey, err := trust.NewIntermediate("example.net", ca, caKey, now)
	ok(t, err)
	ok(t, trust.AddOnlineCA(f.dir, certificate, certificateKey))
	return f
}

func (f *founded) sign(t *testing.T, files map[string]string) {
	t.Helper()
	texts := map[string][]byte{}
	file := func(path string) trust.File {
		texts[trust.HashOf([]byte(files[path]))] = []byte(files[path])
		ok(t, os.MkdirAll(filepath.Dir(filepath.Join(f.repository, path)), 0o755))
		ok(t, os.WriteFile(filepath.Join(f.repository, path), []byte(files[path]), 0o600))
		return trust.File{Path: path, SHA256: trust.HashOf([]byte(files[path])), Size: int64(len(files[path]))}
	}
	_, err := f.trust.Sign(trust.Signing{Level: 1, File: file("fleet.yaml"), Parts: []trust.File{file("parts/10-base.yaml")}, Texts: texts}, time.Now(), f.policy)
	ok(t, err)
}

// serve runs a controller until the function that it returns is called.
func (f *founded) serve(t *testing.T, more ...string) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var out, errOut strings.Builder
	go func() {
		root := Root()
		root.SetContext(ctx)
		ended <- command.Run(root, append([]string{"run", "--dir", f.dir, "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0"}, more...), nil, &out, &errOut)
	}()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := api.NewClient(f.dir).Status(t.Context()); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	return func() {
		stop()
		if status := <-ended; status != 0 || !strings.HasPrefix(out.String(), "serves the fleet example.net at 127.0.0.1:") {
			t.Errorf("it ends with %d: %s%s", status, &out, &errOut)
		}
		if _, err := os.Stat(api.Socket(f.dir)); !os.IsNotExist(err) {
			t.Errorf("its socket stays: %v", err)
		}
	}
}

// enrol makes a host by a token that was printed.
func enrol(t *testing.T, name, printed string) {
	t.Helper()
	token, err := trust.ParseToken(printed)
	ok(t, err)
	base := "https://" + token.Controllers[0]
	open := &wire.Client{Base: base, HTTP: &http.Client{Transport: &http.Transport{TLSClientConfig: trust.RootTLS(), DisableKeepAlives: true}}}
	roots, err := open.Roots(t.Context())
	ok(t, err)
	root, err := trust.PinnedRoot(roots, token.Root)
	ok(t, err)
	h, err := trust.NewHost(t.TempDir(), root)
	ok(t, err)
	_, request, err := trust.NewRequest(name)
	ok(t, err)
	c := &wire.Client{Base: base, HTTP: &http.Client{Transport: &http.Transport{TLSClientConfig: h.ClientTLS(nil, time.Now), DisableKeepAlives: true}}}
	_, err = c.Enrol(t.Context(), &wire.Enrol{Secret: token.Secret, Host: name, Request: string(request)})
	ok(t, err)
}

// TestController is a day of one: it begins, hosts enrol, a bundle goes out, a host is
// revoked, and it ends.
func TestController(t *testing.T) {
	f := found(t)
	for _, line := range [][]string{{"hosts"}, {"token", "create", "--repository", f.repository}, {"revoke", "web-1"}, {"rollout", "show"}, {"rollout", "pause"}} {
		if _, errOut := run(t, 2, append(line, "--dir", f.dir)...); !strings.Contains(errOut, "no controller runs there\nhint: sluice-controller run starts one") {
			t.Errorf("%v: %s", line, errOut)
		}
	}
	if _, errOut := run(t, 2, "run", "--dir", filepath.Join(f.dir, "none")); !strings.Contains(errOut, "hint: sluice-controller init makes one") {
		t.Error(errOut)
	}
	defer f.serve(t)()
	if out, _ := run(t, 0, "hosts", "--dir", f.dir); out != "no host\n" {
		t.Error(out)
	}
	signed, err := os.ReadFile(filepath.Join(f.dir, "trust.json"))
	ok(t, err)
	shown, errText := run(t, 2, "run", "--dir", f.dir, "--listen", "127.0.0.1:0")
	if !strings.Contains(errText, "another controller runs in this directory") || shown != "" {
		t.Error(shown, errText)
	}
	if now, err := os.ReadFile(filepath.Join(f.dir, "trust.json")); err != nil || string(now) != string(signed) {
		t.Errorf("the second one has signed: %v", err)
	}
	if err := hinted(fs.ErrPermission); !strings.Contains(err.Error(), "hint: root and the user that the controller runs as may use it") {
		t.Error(err)
	}
	for _, wrong := range [][]string{{"--for", "0s"}, {"--uses", "0"}, {"--labels", "role=a b"}, {"--repository", f.dir}} {
		run(t, 2, append([]string{"token", "create", "--dir", f.dir, "--repository", f.repository}, wrong...)...)
	}
	token, said := run(t, 0, "token", "create", "--dir", f.dir, "--repository", f.repository, "--labels", "role=web,env=prod", "--for", "2d", "--uses", "2")
	if !strings.Contains(said, "lets 2 hosts enrol until") || !strings.Contains(said, "sluice agent enrol https://127.0.0.1:") {
		t.Error(said)
	}
	if strings.Contains(said, "hint: ") {
		t.Error(said)
	}
	for controller, hints := range map[string]bool{"web:7443": true, "controller.example.net:7443": false, "192.0.2.10:7443": false, "[2001:db8::10]:7443": false} {
		if hint := reachedByName([]string{controller}); strings.Contains(hint, "cannot resolve web") != hints || !hints && hint != "" {
			t.Errorf("%s: %q", controller, hint)
		}
	}
	enrol(t, "web-1", token)
	enrol(t, "web-2", token)
	shown, _ = run(t, 1, "hosts", "--dir", f.dir)
	if !strings.Contains(shown, "web-1  offline  no bundle") || !strings.Contains(shown, "it has never connected") || !strings.Contains(shown, "0 of 2 hosts proved") {
		t.Error(shown)
	}
	if shown, _ := run(t, 0, "hosts", "--dir", f.dir, "role=db"); shown != "no host\n" {
		t.Error(shown)
	}
	run(t, 2, "hosts", "--dir", f.dir, "role=")

	if _, errText := run(t, 2, "publish", "--dir", f.dir, "--repository", f.repository); !strings.Contains(errText, "no bundle is signed yet\nhint: sluice-controller sign") {
		t.Error(errText)
	}
	if _, errText := run(t, 2, "rollout", "show", "--dir", f.dir); !strings.Contains(errText, "there is no roll-out") {
		t.Error(errText)
	}
	f.sign(t, map[string]string{"fleet.yaml": "version: 1\nfleet: example.net\nparts: [parts/*.yaml]\n", "parts/10-base.yaml": "version: 1\ninput: {default: drop}\n"})
	unseen := filepath.Join(f.repository, "inventory.yaml")
	write(t, unseen, "version: 1\nhosts: {web-1: {labels: {role: db}}}\n")
	part := filepath.Join(f.repository, "parts/10-base.yaml")
	text, err := os.ReadFile(part)
	ok(t, err)
	ok(t, os.WriteFile(part, []byte("version: 1\n"), 0o600))
	if _, errText := run(t, 2, "publish", "--dir", f.dir, "--repository", f.repository); !strings.Contains(errText, "parts/10-base.yaml was changed after bundle 1 was signed") {
		t.Error(errText)
	}
	ok(t, os.WriteFile(part, text, 0o600))
	shown, errText = run(t, 0, "publish", "--dir", f.dir, "--repository", f.repository)
	if !strings.Contains(shown, "bundle 1 is published, and 3 files sent; roll-out 1 has begun") || !strings.Contains(errText, "inventory.yaml is out of date for web-1 and web-2: ") {
		t.Error(shown, errText)
	}
	ok(t, os.Remove(unseen))
	if shown, _ := run(t, 0, "rollout", "pause", "--dir", f.dir, "--message", "lunch"); !strings.Contains(shown, "roll-out 1 of bundle 1: paused") || !strings.Contains(shown, "lunch") {
		t.Error(shown)
	}
	if _, errText := run(t, 2, "rollout", "pause", "--dir", f.dir); !strings.Contains(errText, "the roll-out of bundle 1 is paused") {
		t.Error(errText)
	}
	var is rollout.Rollout
	shown, _ = run(t, 0, "rollout", "show", "1", "--dir", f.dir, "--json")
	if err := json.Unmarshal([]byte(shown), &is); err != nil || is.State.Phase != rollout.Paused {
		t.Errorf("%v: %s", err, shown)
	}
	run(t, 0, "rollout", "resume", "--dir", f.dir)
	run(t, 2, "rollout", "show", "9", "--dir", f.dir)
	run(t, 2, "rollout", "show", "x", "--dir", f.dir)
	run(t, 0, "rollout", "halt", "--dir", f.dir)
	run(t, 1, "rollout", "show", "--dir", f.dir)
	if shown, _ := run(t, 0, "rollout", "show", "--all", "--dir", f.dir); !strings.Contains(shown, "bundle 1  halted") {
		t.Error(shown)
	}

	again := []string{"publish", "--dir", f.dir, "--repository", f.repository, "--not-before"}
	for _, text := range []string{"tomorrow", "2020-01-01T00:00:00Z", "-1h"} {
		if _, errText := run(t, 2, append(again, text)...); !strings.Contains(errText, "--not-before") {
			t.Error(errText)
		}
	}
	run(t, 0, append(again, "1d8h")...)
	shown, _ = run(t, 0, "rollout", "show", "--dir", f.dir, "--json")
	if err := json.Unmarshal([]byte(shown), &is); err != nil || is.ID != 2 || time.Until(is.Plan.NotBefore) < 31*time.Hour {
		t.Errorf("%v: %s", err, shown)
	}

	if _, errText := run(t, 2, "revoke", "web-9", "--dir", f.dir); !strings.Contains(errText, "hint: sluice-controller hosts lists") {
		t.Error(errText)
	}
	run(t, 0, "revoke", "web-2", "--dir", f.dir, "--message", "sold")
	run(t, 2, "revoke", "web-2", "--dir", f.dir)
	run(t, 2, "revoke", "web-9", "--dir", f.dir)
	var hosts api.Hosts
	shown, _ = run(t, 1, "hosts", "--dir", f.dir, "--json")
	if err := json.Unmarshal([]byte(shown), &hosts); err != nil || len(hosts.Hosts) != 1 || hosts.Hosts[0].Labels["env"] != "prod" {
		t.Errorf("%v: %s", err, shown)
	}
	if shown, _ := run(t, 0, "audit", "list", "--dir", f.dir); !strings.Contains(shown, "host.revoke") || !strings.Contains(shown, "rollout.start") {
		t.Error(shown)
	}
}

// TestPublishAfterRestore: of a controller whose database is older than what was published,
// nothing is missing after the next publication, though the files are others by now.
func TestPublishAfterRestore(t *testing.T) {
	f := found(t)
	fleet := "version: 1\nfleet: example.net\nparts: [parts/*.yaml]\n"
	publish := func(want, part string) string {
		t.Helper()
		f.sign(t, map[string]string{"fleet.yaml": fleet, "parts/10-base.yaml": "version: 1\ninput: {default: drop, rules: [allow " + part + "]}\n"})
		out, errOut := run(t, 0, "publish", "--dir", f.dir, "--repository", f.repository)
		has(t, out, want)
		return errOut
	}
	end := f.serve(t)
	publish("bundle 1 is published, and 3 files sent", "ssh")
	end()
	database, copied := filepath.Join(f.dir, "fleet.db"), t.TempDir()
	move := func(from, to string) { // the log beside it too
		t.Helper()
		files, err := filepath.Glob(filepath.Join(from, "fleet.db*"))
		ok(t, err)
		for _, file := range files {
			ok(t, os.Rename(file, filepath.Join(to, filepath.Base(file))))
		}
	}
	move(f.dir, copied)
	end = f.serve(t) // another one, to which the next bundles go
	publish("bundle 2 is published, and 5 files sent", "http")
	publish("bundle 3 is published, and 2 files sent", "dns")
	end()
	move(f.dir, t.TempDir())
	move(copied, f.dir)

	end = f.serve(t)
	publish("bundle 4 is published, and 6 files sent", "ntp") // manifests and parts of 2, 3 and 4
	kept, err := store.OpenExisting(t.Context(), "sqlite:"+database)
	ok(t, err)
	bundles, err := kept.Bundles(t.Context())
	ok(t, err)
	if len(bundles) != 4 {
		t.Errorf("bundles %+v", bundles)
	}
	for _, b := range f.trust.Bundles() {
		text, err := os.ReadFile(filepath.Join(f.repository, "trust/bundles", fmt.Sprintf("%d.json", b.Number)))
		ok(t, err)
		m, err := b.Manifest(text)
		ok(t, err)
		for _, file := range m.Files() {
			if missing, err := kept.MissingBlobs(t.Context(), []string{file.SHA256}); err != nil || len(missing) > 0 {
				t.Errorf("%s of bundle %d is missing: %v", file.Path, b.Number, err)
			}
		}
	}
	ok(t, kept.Close())

	// What nobody has any more is named.
	text, err := os.ReadFile(filepath.Join(f.repository, "trust/bundles/4.json"))
	ok(t, err)
	m, err := f.trust.Bundles()[3].Manifest(text)
	ok(t, err)
	ok(t, os.Remove(filepath.Join(f.repository, "trust/blobs", m.Parts[0].SHA256)))
	f.sign(t, map[string]string{"fleet.yaml": fleet, "parts/10-base.yaml": "version: 1\n"})
	end()
	move(f.dir, t.TempDir())
	defer f.serve(t)()
	_, errOut := run(t, 0, "publish", "--dir", f.dir, "--repository", f.repository)
	has(t, errOut, "warning: parts/10-base.yaml of bundle 4 is neither at the controller nor in trust/blobs: no host can go back to it")
}
