package nft_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/nft"
)

const guarded = "guarded"

// TestGuardedChild is a process that makes a table under guard and waits to be killed:
// after it has told the handle, or before.
func TestGuardedChild(t *testing.T) {
	when := os.Getenv("SLUICE_GUARDED_CHILD")
	if when == "" {
		t.Skip("a part of TestGuardDeletes")
	}
	g, err := nft.NewGuard(guarded, time.Hour)
	if err == nil {
		err = nft.Run(context.Background(), "add table inet "+guarded+"\n")
	}
	if err == nil && when == "told" {
		err = g.Made()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = os.Stdout.WriteString("ready\n")
	time.Sleep(time.Hour)
}

// A killed process leaves no table behind, and what others made stays.
func TestGuardDeletes(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	for _, when := range []string{"told", "not told"} {
		t.Run(when, func(t *testing.T) {
			ns := testnet.New(t).Namespace("guarded")
			ns.Nft("table inet other { }")
			cmd := exec.Command("ip", "netns", "exec", ns.Name(), os.Args[0], "-test.run", "^TestGuardedChild$")
			cmd.Env = append(os.Environ(), "SLUICE_GUARDED_CHILD="+when)
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			said := make([]byte, 6)
			if err == nil {
				_, err = out.Read(said)
			}
			if err != nil || string(said) != "ready\n" {
				t.Fatalf("the process that is to be killed says %q, %v", said, err)
			}
			if got := tables(t, ns); !slices.Contains(got, guarded) {
				t.Fatalf("there are tables %v", got)
			}
			_ = cmd.Process.Signal(syscall.SIGKILL)
			_ = cmd.Wait()
			gone := func() bool { return slices.Equal(tables(t, ns), []string{"other"}) }
			for range 6000 {
				if gone() {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
			t.Errorf("the process is killed, and there are tables %v", tables(t, ns))
		})
	}
}

func tables(t *testing.T, ns *testnet.Namespace) (names []string) {
	t.Helper()
	var all []nft.Named
	if err := ns.Do(func() (err error) { all, err = nft.Tables(); return err }); err != nil {
		t.Fatal(err)
	}
	for _, table := range all {
		names = append(names, table.Name)
	}
	return names
}

// A guard deletes its own table and no later one of that name, and does so while the
// process goes on, once the time is over.
func TestGuardKnowsItsTable(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Program("timeout"))
	ns := testnet.New(t).Namespace("guard")
	ctx := context.Background()
	var g *nft.Guard
	begin := func(life time.Duration) {
		t.Helper()
		if err := ns.Do(func() (err error) {
			if g, err = nft.NewGuard(guarded, life); err != nil {
				return err
			}
			if err = nft.Run(ctx, "add table inet "+guarded+"\n"); err != nil {
				return err
			}
			return g.Made()
		}); err != nil {
			t.Fatal(err)
		}
	}
	begin(time.Hour)
	ns.MustRun("nft", "delete table inet "+guarded+"; add table inet "+guarded)
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if got := strings.Join(tables(t, ns), " "); got != guarded {
		t.Errorf("of a later table of the same name stays %q", got)
	}
	ns.MustRun("nft", "delete table inet "+guarded)
	begin(time.Millisecond)
	defer func() { _ = g.Close() }()
	for range 6000 {
		if len(tables(t, ns)) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("after its time there are tables %v", tables(t, ns))
}
