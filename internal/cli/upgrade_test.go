package cli

import (
	"crypto/tls"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"sluice/internal/base/testgolden"
	"sluice/internal/fleet/trust"
	"sluice/internal/lab/testnet"
)

// upgradeDir has what promises about state are tested with: "commit" names the version that
// wrote state.tar.gz by write.txtar, and read.txtar says what another version makes of that.
const upgradeDir = "testdata/upgrade"

// TestUpgrade has this version take over from the one whose state is kept. With -update it
// builds that one and has it write its state again. A release does that, with its own commit: the
// fleet's certificates renew themselves for a year.
func TestUpgrade(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	state, err := filepath.Abs(filepath.Join(upgradeDir, "state.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if testgolden.Update() {
		dir := buildOlder(t, filepath.Join(upgradeDir, "commit"), 0, "./cmd/sluice", "./cmd/sluice-controller").dir
		upgradeScript(t, "write", filepath.Join(dir, "sluice"), filepath.Join(dir, "sluice-controller"), func(env *testscript.Env) error {
			env.Setenv("PACK", state)
			return nil
		})
	}
	upgradeScript(t, "read", "sluice", "sluice-controller", func(env *testscript.Env) error {
		return unpack(state, env.WorkDir)
	})
}

// TestDowngrade has the version before take over from this one.
func TestDowngrade(t *testing.T) {
	if testing.Short() {
		t.Skip("builds an older program")
	}
	testnet.Require(t, testnet.Namespaces)
	dir := buildOlder(t, filepath.Join(upgradeDir, "commit"), 0, "./cmd/sluice", "./cmd/sluice-controller").dir
	state := filepath.Join(t.TempDir(), "state.tar.gz")
	upgradeScript(t, "write", "sluice", "sluice-controller", func(env *testscript.Env) error {
		env.Setenv("PACK", state)
		return nil
	})
	upgradeScript(t, "read", filepath.Join(dir, "sluice"), filepath.Join(dir, "sluice-controller"), func(env *testscript.Env) error {
		return unpack(state, env.WorkDir)
	})
}

func upgradeScript(t *testing.T, name, sluice, controller string, setup func(*testscript.Env) error) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		testscript.Run(t, testscript.Params{
			Files:               []string{filepath.Join(upgradeDir, name+".txtar")},
			RequireExplicitExec: true,
			Setup: func(env *testscript.Env) error {
				env.Setenv("NO_COLOR", "1")
				env.Setenv("SLUICE", sluice)
				env.Setenv("CONTROLLER", controller)
				return setup(env)
			},
			Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
				"connects": scriptConnects, "exits": scriptExits, "netns": scriptNetns, "eventually": scriptEventually, "renewable": scriptRenewable,
			},
		})
	})
}

func unpack(archive, work string) error {
	left := filepath.Join(work, "left")
	if err := os.Mkdir(left, 0o755); err != nil {
		return err
	}
	return exec.Command("tar", "-C", left, "-xzf", archive).Run()
}

// scriptRenewable fails where the certificate of a host in a state is over and can no longer renew
// itself, as a part that is left out would go unseen. A moment may be given for now.
func scriptRenewable(ts *testscript.TestScript, neg bool, args []string) {
	file, now := ts.MkAbs(filepath.Join(args[0], "fleet/key.pem")), time.Now()
	pair, err := tls.LoadX509KeyPair(file, file)
	ts.Check(err)
	if len(args) > 1 {
		now, err = time.Parse(time.DateOnly, args[1])
		ts.Check(err)
	}
	switch end := pair.Leaf.NotAfter.Add(trust.RenewFor); {
	case now.After(end) != neg && neg:
		ts.Fatalf("it renews itself until %s", end.Format(time.DateOnly))
	case now.After(end) != neg:
		ts.Fatalf("the host's certificate renewed itself until %s: go test -run TestUpgrade -update ./internal/cli has the version of internal/cli/testdata/upgrade/commit write the state again", end.Format(time.DateOnly))
	}
}
