package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/fleet/archive"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
)

// TestAirGap: a bundle goes from one controller to another in a file, and what was not signed
// for this fleet does not.
func TestAirGap(t *testing.T) {
	f, end := lives(t)
	far := &founded{repository: f.repository, dir: t.TempDir(), trust: f.trust, policy: f.policy}
	ok(t, os.CopyFS(filepath.Join(far.dir, "keys"), os.DirFS(filepath.Join(f.dir, "keys"))))
	for _, name := range []string{"ca.pem", "ca-key.pem"} {
		text, err := os.ReadFile(filepath.Join(f.dir, name))
		ok(t, err)
		ok(t, os.WriteFile(filepath.Join(far.dir, name), text, 0o600))
	}
	ok(t, trust.NewOnline(far.dir, f.trust.Root()))
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	_, errOut := run(t, 2, "export", "--dir", f.dir, "--bundle", "7", file("none"))
	has(t, errOut, "--bundle 7: bundles 1 to 1 are signed")
	f.sign(t, map[string]string{"fleet.yaml": firstPolicy, "parts/10-base.yaml": "version: 1\ninput: {default: drop, rules: [allow http]}\n"})
	run(t, 0, "publish", "--dir", f.dir, "--repository", f.repository)
	out, _ := run(t, 0, "export", "--dir", f.dir, "--bundle", "1", file("1"))
	has(t, out, "bundle 1 of example.net, good until ", "3 files")
	run(t, 0, "export", "--dir", f.dir, file("2"))
	_, errOut = run(t, 2, "export", "--dir", f.dir, file("2"))
	has(t, errOut, "is not overwritten")
	end() // it needs no controller, and gives the same bytes
	run(t, 0, "export", "--dir", f.dir, "--bundle", "2", file("again"))
	second, err := os.ReadFile(file("2"))
	ok(t, err)
	again, err := os.ReadFile(file("again"))
	ok(t, err)
	if !bytes.Equal(second, again) {
		t.Error("the same bundle gives other bytes")
	}

	defer far.serve(t)()
	out, _ = run(t, 0, "import", "--dir", far.dir, file("1"))
	has(t, out, "bundle 1 is published, and 3 files sent; roll-out 1 has begun")
	out, _ = run(t, 0, "import", "--dir", far.dir, file("2"), "--json")
	has(t, out, `"bundle": 2`, `"sent": 2`)
	s, err := store.OpenExisting(t.Context(), "sqlite:"+filepath.Join(far.dir, "fleet.db"))
	ok(t, err)
	defer s.Close()
	bundles, err := s.Bundles(t.Context())
	ok(t, err)
	if len(bundles) != 2 {
		t.Errorf("%+v", bundles)
	}

	// A bundle of another fleet, a file that was changed, one with another policy in it.
	foreign, endForeign := lives(t)
	run(t, 0, "export", "--dir", foreign.dir, file("foreign"))
	endForeign()
	ok(t, os.WriteFile(file("cut"), second[:len(second)-9], 0o600))
	ok(t, os.WriteFile(file("other"), []byte(firstPolicy), 0o600))
	changed(t, file("2"), file("forged"), "allow http", "allow ssh ")
	for name, want := range map[string]string{
		"foreign": "is not signed by a key of this fleet", "cut": "cut: it is damaged: its end is missing",
		"other": "other: not a file of this kind\nhint: sluice-controller export writes one", "forged": "is another file",
	} {
		_, errOut := run(t, 2, "import", "--dir", far.dir, file(name))
		has(t, errOut, want)
	}
	if now, err := s.Bundles(t.Context()); err != nil || len(now) != 2 {
		t.Errorf("%+v %v", now, err)
	}
}

// changed writes an archive again with another word in its files.
func changed(t *testing.T, from, to, word, other string) {
	t.Helper()
	f, err := os.Open(from)
	ok(t, err)
	defer f.Close()
	a, err := archive.Open(f, exportKind, exportVersion)
	ok(t, err)
	defer a.Close()
	var is exported
	ok(t, a.About(&is))
	var files []archive.Source
	ok(t, a.Each(func(f archive.File, r io.Reader) error {
		text, err := io.ReadAll(r)
		files = append(files, archive.Bytes(f.Path, f.Mode, []byte(strings.ReplaceAll(string(text), word, other))))
		return err
	}))
	out, err := os.Create(to)
	ok(t, err)
	defer out.Close()
	ok(t, archive.Write(out, exportKind, exportVersion, is, files))
}
