package controller

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// TestBlobs: a host gets its own parts, whole or as a patch, and nobody else's.
func TestBlobs(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	web, err := f.join("web-1", f.token(map[string]string{"role": "web"}, 1))
	ok(t, err)
	db, err := f.join("db-1", f.token(map[string]string{"role": "db"}, 1))
	ok(t, err)
	var lines strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&lines, "# %d %x\n", i, i*i)
	}
	one, two := lines.String(), lines.String()+"# more\n"
	for _, text := range []string{one, two} {
		_, err = f.publish(text)
		ok(t, err)
	}
	first, second := "version: 1\n"+one, "version: 1\n"+two
	part := trust.HashOf([]byte("version: 1\nhosts: role=db\n# " + strings.ReplaceAll(one, "\n", "\n# ")))
	for _, from := range [][]byte{nil, []byte(first), []byte("another")} {
		got, err := web.client.Blob(t.Context(), trust.HashOf([]byte(second)), 1<<20, from)
		if err != nil || string(got) != second {
			t.Errorf("from %d bytes: %d, %v", len(from), len(got), err)
		}
	}
	answer, err := web.client.HTTP.Get(web.client.Base + wire.PathBlobs + trust.HashOf([]byte(second)) + "?from=" + trust.HashOf([]byte(first)))
	ok(t, err)
	defer answer.Body.Close()
	if patch, err := io.ReadAll(answer.Body); err != nil || answer.Header.Get("Content-Type") != wire.PatchType || len(patch) > 1000 {
		t.Errorf("%d bytes of %s for a line more", len(patch), answer.Header.Get("Content-Type"))
	}
	if _, err := db.client.Blob(t.Context(), part, 1<<20, nil); err != nil {
		t.Error(err)
	}
	if _, err := web.client.Blob(t.Context(), part, 1<<20, nil); kind(err) != wire.KindNotFound {
		t.Errorf("a part of others: %v", err)
	}
	for _, path := range []string{"x", strings.Repeat("A", 64), trust.HashOf(nil) + "?from=x", "../desired"} {
		answer, err := web.client.HTTP.Get(web.client.Base + wire.PathBlobs + path)
		ok(t, err)
		if answer.Body.Close(); answer.StatusCode == http.StatusOK && !strings.HasSuffix(path, "desired") {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
}

// TestPrune: of bundles that are signed no more, those go that no host runs or is told to run.
func TestPrune(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	one, err := f.join("web-1", f.token(nil, 1))
	ok(t, err)
	conn := one.stream(&wire.Report{Bundle: 2, Running: 2, State: wire.StateConfirmed}) // of before a restore, say
	defer conn.Cut()
	for n := range 23 {
		_, err = f.publish(fmt.Sprintf("# %d\n", n))
		ok(t, err)
		f.until("web-1 is sent the first bundle", func() bool { return f.controller.view.Load().desired["web-1"].Bundle == 1 })
	}
	f.until("the report", func() bool { return f.controller.statuses.read("web-1").settled == 2 })
	ok(t, f.controller.prune(t.Context()))
	bundles, err := f.controller.Store.Bundles(t.Context())
	ok(t, err)
	var numbers []int64
	for _, b := range bundles {
		numbers = append(numbers, b.Number)
	}
	if len(numbers) != 22 || !slices.Equal(numbers[19:], []int64{4, 2, 1}) {
		t.Errorf("bundles %v, of 23", numbers)
	}
	ok(t, f.controller.prune(t.Context()))
}

// TestPublishRefuses: what a host would refuse does not become a bundle.
// TestPushed: what is desired comes with the files that a host does not have and may see,
// unless they are large.
func TestPushed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	f.text += "roll-out: {stages: [100%], settle: none}\n"
	conns := map[string]*wire.Conn{}
	for host, role := range map[string]string{"web-1": "web", "db-1": "db"} {
		a, err := f.join(host, f.token(map[string]string{"role": role}, 1))
		ok(t, err)
		conns[host] = a.stream(nil)
	}
	gets := func(host string, bundle int64) map[string]bool {
		t.Helper()
		for {
			m, err := conns[host].Receive(t.Context())
			ok(t, err)
			if m.Desired == nil || m.Desired.Bundle != bundle {
				continue
			}
			got := map[string]bool{}
			for _, text := range m.Desired.Blobs {
				got[string(text)] = true
			}
			ok(t, conns[host].Send(t.Context(), &wire.Message{Report: &wire.Report{
				Order: m.Desired.Order, Rollout: m.Desired.Rollout, Bundle: bundle, State: wire.StateConfirmed, Running: bundle, Proved: time.Now(),
			}}))
			return got
		}
	}
	publish := func(text string) (base, db, manifest string) {
		t.Helper()
		_, err := f.publish(text)
		ok(t, err)
		for hash, content := range must(f.repository.Manifests()) {
			if m := (&trust.Manifest{}); json.Unmarshal(content, m) == nil && m.Parts[0].SHA256 == trust.HashOf([]byte("version: 1\n"+text)) {
				manifest = string(f.files[hash])
				base, db = string(f.files[m.Parts[0].SHA256]), string(f.files[m.Parts[1].SHA256])
			}
		}
		return base, db, manifest
	}
	base, db, manifest := publish("input: {default: drop}\n")
	for host, want := range map[string][]string{"web-1": {manifest, f.text, base}, "db-1": {manifest, f.text, base, db}} {
		if got := gets(host, 1); len(got) != len(want) || slices.ContainsFunc(want, func(text string) bool { return !got[text] }) {
			t.Errorf("%s gets %v, want %q", host, got, want)
		}
	}
	base, _, manifest = publish("input: {default: reject}\n")
	if got := gets("web-1", 2); len(got) != 2 || !got[manifest] || !got[base] {
		t.Errorf("of another part: %v", got)
	}
	gets("db-1", 2)
	_, _, manifest = publish("input: {default: drop}\n# " + strings.Repeat("x", wire.MostPushed) + "\n")
	if got := gets("web-1", 3); len(got) != 1 || !got[manifest] {
		t.Errorf("of a large part: %d blobs", len(got))
	}
}
