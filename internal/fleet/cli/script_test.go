package cli

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"sluice-controller": func() { os.Exit(Main(os.Args[1:])) }})
}

// TestScripts runs testdata/script. Beside the commands of testscript there is
//
//	exits STATUS PROGRAM ARG...   runs a program and checks its exit status
//
// Copies of lists are in $WORK/cache.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("XDG_CACHE_HOME", env.WorkDir+"/cache")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": func(ts *testscript.TestScript, _ bool, args []string) {
			want, err := strconv.Atoi(args[0])
			ts.Check(err)
			got := 0
			err = ts.Exec(args[1], args[2:]...)
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				got = exit.ExitCode()
			} else {
				ts.Check(err)
			}
			if got != want {
				ts.Fatalf("exit status %d, want %d", got, want)
			}
		}},
	})
}
