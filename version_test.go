package sluice_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/lab/testnet"
)

// TestVersion commits, tags and archives, and has dpkg and rpm say which version is newer.
func TestVersion(t *testing.T) {
	testnet.Require(t, testnet.Program("git"), testnet.Program("dpkg"), testnet.Program("rpm"))
	dir := t.TempDir()
	run := func(dir, name string, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.net", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.net")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"scripts/version", ".gitattributes"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		write(name, string(text), 0o755)
	}
	// commit returns what a clone and an archive of it say.
	commit := func(date string) string {
		t.Helper()
		run(dir, "git", "add", ".")
		run(dir, "env", "GIT_COMMITTER_DATE="+date, "git", "commit", "--quiet", "--allow-empty", "--message", "next")
		return run(dir, "scripts/version")
	}
	archived := func() string {
		t.Helper()
		unpacked := t.TempDir()
		run(dir, "sh", "-c", `git archive HEAD | tar -x -C "$1"`, "sh", unpacked)
		if got, want := run(unpacked, "scripts/version", "--time"), run(dir, "scripts/version", "--time"); got != want {
			t.Errorf("the time of an archive: %s, want %s", got, want)
		}
		return run(unpacked, "scripts/version")
	}
	hash := func() string { return run(dir, "git", "rev-parse", "HEAD")[:8] }

	write("VERSION", "1.2.3\n", 0o644)
	unknown := run(dir, "scripts/version")
	if unknown != "1.2.3~unknown" {
		t.Errorf("without git: %q", unknown)
	}
	run(dir, "git", "init", "--quiet")
	var ordered []string
	add := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
		ordered = append(ordered, got)
	}
	first := commit("2026-11-29T09:05:07+01:00")
	add("a commit", first, "1.2.3~git20261129.080507."+hash())
	if got := archived(); got != first {
		t.Errorf("an archive: %q, want %q", got, first)
	}
	write("VERSION", "1.2.3", 0o644)
	add("changed", run(dir, "scripts/version"), first+".changed")
	add("a minute later", commit("2026-11-29T08:06:00Z"), "1.2.3~git20261129.080600."+hash())
	add("the same day", commit("2026-11-29T17:00:00Z"), "1.2.3~git20261129.170000."+hash())
	add("the year after", commit("2027-01-01T00:00:00Z"), "1.2.3~git20270101.000000."+hash())
	run(dir, "git", "tag", "--annotate", "--message", "candidate", "v1.2.3-rc1")
	add("a candidate", commit("2027-01-01T00:00:05Z"), "1.2.3~git20270101.000005."+hash())
	run(dir, "git", "tag", "--annotate", "--message", "release", "v1.2.3")
	add("the release", run(dir, "scripts/version"), "1.2.3")
	if got := archived(); got != "1.2.3" {
		t.Errorf("an archive of the release: %q", got)
	}
	add("after the release", commit("2027-01-01T00:00:10Z"), "1.2.3+git20270101.000010."+hash())
	if got, want := archived(), ordered[len(ordered)-1]; got != want {
		t.Errorf("an archive after the release: %q, want %q", got, want)
	}
	write("VERSION", "1.2.4\n", 0o644)
	add("the next version", commit("2027-01-01T00:00:20Z"), "1.2.4~git20270101.000020."+hash())

	// Nobody runs what somebody called a tag.
	run(dir, "git", "tag", `v1.2.4';touch${IFS}ran;'`)
	if got, want := archived(), ordered[len(ordered)-1]; got != want {
		t.Errorf("an archive of a commit with a hostile tag: %q, want %q", got, want)
	}

	for i, older := range ordered[:len(ordered)-1] {
		newer := ordered[i+1]
		if err := exec.CommandContext(t.Context(), "dpkg", "--compare-versions", older, "lt", newer).Run(); err != nil {
			t.Errorf("dpkg: %s is not older than %s: %v", older, newer, err)
		}
		if got := run(dir, "rpm", "--eval", `%{lua: print(rpm.vercmp("`+older+`", "`+newer+`"))}`); got != "-1" {
			t.Errorf("rpm: %s and %s: %s, want -1", older, newer, got)
		}
	}
}
