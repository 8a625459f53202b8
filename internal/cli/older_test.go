package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"sluice/internal/agent/api"
	"sluice/internal/lab/testnet"
)

// olderCommit names the commit of which the older program is built. Whoever raises
// api.Level writes the last one of the level before there.
const olderCommit = "testdata/older/commit"

// TestOlder has the commands of now ask an older agent, and older commands the agent of
// now: of one level of the protocol they work together, and otherwise they refuse.
func TestOlder(t *testing.T) {
	if testing.Short() {
		t.Skip("builds an older program, twice")
	}
	testnet.Require(t, testnet.Namespaces)
	built := buildOlder(t, olderCommit, 0, "./cmd/sluice")
	older, level := filepath.Join(built.dir, "sluice"), built.level
	below := filepath.Join(buildOlder(t, olderCommit, -1, "./cmd/sluice").dir, "sluice")
	document := document(t)
	works, refused := "works", "refused"
	if level != api.Level {
		works = refused
	}
	for _, c := range []struct{ name, agent, commands, older, script string }{
		{"older agent", older, "sluice", older, works},
		{"older commands", "sluice", older, older, works},
		{"agent a level below", below, "sluice", below, refused},
		{"commands a level below", "sluice", below, below, refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			testscript.Run(t, testscript.Params{
				Files:               []string{"testdata/older/" + c.script + ".txtar"},
				RequireExplicitExec: true,
				Setup: func(env *testscript.Env) error {
					env.Setenv("SLUICE_STATE_DIR", filepath.Join(env.WorkDir, "state"))
					env.Setenv("NO_COLOR", "1")
					env.Setenv(documentVariable, document)
					env.Setenv("AGENT", c.agent)
					env.Setenv("COMMANDS", c.commands)
					env.Setenv("OLDER", c.older)
					return nil
				},
				Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
					"exits": scriptExits, "netns": scriptNetns, "eventually": scriptEventually,
				},
			})
		})
	}
}

// older is where programs of an older version are, and the level of their protocol.
type older struct {
	dir   string
	level int
}

// buildOlder builds programs of the version that a file names, of so many levels more than
// api.Level, or with 0 of its own.
func buildOlder(t *testing.T, commit string, more int, programs ...string) (o older) {
	t.Helper()
	text, err := os.ReadFile(commit)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run := func(in []byte, name string, args ...string) []byte {
		c := exec.CommandContext(t.Context(), name, args...)
		if c.Dir, c.Stdin = dir, bytes.NewReader(in); name == "git" {
			c.Dir = "../.." // of the repository, of whomever it is
		}
		var told bytes.Buffer
		c.Stderr = &told
		out, err := c.Output()
		if err != nil && name == "git" {
			t.Skipf("the older program cannot be had: %v %s", err, &told)
		}
		if err != nil {
			t.Fatalf("%s: %v %s", name, err, &told)
		}
		return out
	}
	run(run(nil, "git", "-c", "safe.directory=*", "archive", strings.TrimSpace(string(text))), "tar", "-x")
	source := filepath.Join(dir, "internal/agent/api/protocol.go")
	code, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	constant := regexp.MustCompile(`(?m)^const Level = (\d+)$`)
	found := constant.FindSubmatch(code)
	if found == nil {
		t.Fatal("the older program has no level")
	}
	o.level, _ = strconv.Atoi(string(found[1]))
	if more != 0 {
		o.level = api.Level + more
		code = constant.ReplaceAll(code, []byte("const Level = "+strconv.Itoa(o.level)))
		if err := os.WriteFile(source, code, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.dir = filepath.Join(dir, "built")
	run(nil, "go", append([]string{"build", "-buildvcs=false", "-o", o.dir + "/"}, programs...)...)
	return o
}
