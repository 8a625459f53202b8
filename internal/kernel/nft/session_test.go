package nft_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/internal/kernel/nft"
	"sluice/internal/testnet"
)

// A session owns its tables: they take transactions from it alone, and go with it.
func TestSessionOwnsItsTables(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	ns := testnet.New(t).Namespace("owner")
	ctx := context.Background()
	in := func(f func() error) {
		t.Helper()
		if err := ns.Do(f); err != nil {
			t.Fatal(err)
		}
	}
	var s *nft.Session
	in(func() (err error) { s, err = nft.OpenSession(time.Minute); return err })
	defer func() { _ = s.Close() }()
	if err := s.Run(ctx, "add table inet t { flags owner; }\nadd chain inet t c\n"); err != nil {
		t.Fatal(err)
	}

	in(func() error {
		if owned, err := nft.Owned("t"); err != nil || !owned {
			t.Errorf("owned %v, %v", owned, err)
		}
		if err := nft.Run(ctx, "add rule inet t c counter\n"); !errors.Is(err, os.ErrPermission) {
			t.Errorf("another socket may change the table: %v", err)
		}
		return nft.Run(ctx, "flush ruleset\n")
	})
	// Several mistakes are told with their places, and nothing of the text holds.
	err := s.Run(ctx, "add chain inet t d\nadd rule inet t none counter\n")
	var problem *nft.Error
	if !errors.As(err, &problem) || problem.Problems[0].Line != 2 || problem.Problems[0].Source != "add rule inet t none counter" {
		t.Errorf("the mistake of line 2 was told as %v", err)
	}
	if err := s.Run(ctx, "add rule inet t d counter\n"); err == nil {
		t.Error("half of a transaction holds")
	}
	large := "add set inet t s { type ipv4_addr; flags interval; }\nadd element inet t s {\n"
	for i := range 20_000 {
		large += fmt.Sprintf("10.%d.%d.1,\n", i>>8, i&255)
	}
	if err := s.Run(ctx, large+"}\nadd rule inet t c counter\n"); err != nil {
		t.Fatal(err)
	}
	if text := ns.MustRun("nft", "-t", "list", "table", "inet", "t"); !strings.Contains(text, "counter packets 0") {
		t.Errorf("after a flush by somebody else and three transactions there is\n%s", text)
	}

	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Run(ctx, "add table inet u\n"); err == nil {
		t.Error("a closed session takes transactions")
	}
	in(func() error {
		tables, err := nft.Tables()
		if len(tables) > 0 {
			t.Errorf("after the end there are tables %v", tables)
		}
		return err
	})
}

// TestSessionChild is a process that holds a session until it is killed.
func TestSessionChild(t *testing.T) {
	if os.Getenv("SLUICE_SESSION_CHILD") == "" {
		t.Skip("a part of TestKilledSessionLeavesNothing")
	}
	s, err := nft.OpenSession(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(context.Background(), "add table inet t { flags owner; }\n"); err != nil {
		t.Fatal(err)
	}
	_, _ = os.Stdout.WriteString("ready\n")
	time.Sleep(time.Hour)
}

func TestKilledSessionLeavesNothing(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	ns := testnet.New(t).Namespace("killed")
	cmd := exec.Command("ip", "netns", "exec", ns.Name(), os.Args[0], "-test.run", "^TestSessionChild$")
	cmd.Env = append(os.Environ(), "SLUICE_SESSION_CHILD=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	there := func() (is bool) {
		if err := ns.Do(func() error {
			tables, err := nft.Tables()
			is = slices.Contains(tables, "t")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return is
	}
	if !there() {
		t.Fatal("the table is not there")
	}
	_ = cmd.Process.Signal(syscall.SIGKILL)
	_ = cmd.Wait()
	for range 1000 {
		if !there() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the table outlives the process that made it")
}
