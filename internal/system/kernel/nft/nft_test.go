package nft_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/nft"
)

func host(t *testing.T) *testnet.Namespace {
	t.Helper()
	testnet.Require(t, testnet.Nftables)
	return testnet.New(t).Unnamed("host")
}

func in(t *testing.T, s *testnet.Namespace, f func(ctx context.Context) error) error {
	t.Helper()
	return s.Do(func() error { return f(context.Background()) })
}

// TestRun: a transaction is taken as a whole or not at all, in the namespace of
// the calling thread.
func TestRun(t *testing.T) {
	s := host(t)
	run := func(text string) error {
		return in(t, s, func(ctx context.Context) error { return nft.Run(ctx, text) })
	}
	if err := run("add table inet t\nadd chain inet t c\n"); err != nil {
		t.Fatal(err)
	}
	err := run("add chain inet t d\n\nadd rule inet t nowhere accept\n")
	var refused *nft.Error
	if !errors.As(err, &refused) || len(refused.Problems) == 0 {
		t.Fatalf("got %v", err)
	}
	p := refused.Problems[0]
	if p.Line != 3 || p.Column == 0 || !strings.Contains(p.Source, "nowhere") || !errors.Is(err, nft.ErrNotThere) {
		t.Errorf("got %+v (%v)", p, err)
	}
	text := s.MustRun("nft", "list", "ruleset")
	if strings.Contains(text, "chain d") || !strings.Contains(text, "chain c") {
		t.Errorf("the ruleset is\n%s", text)
	}
	if err := run("bad words here\n"); !errors.As(err, &refused) || refused.Problems[0].Line != 1 {
		t.Errorf("a syntax error gives %v", err)
	}
}

// TestCheck asks and changes nothing.
func TestCheck(t *testing.T) {
	s := host(t)
	check := func(text string) error {
		return in(t, s, func(ctx context.Context) error { return nft.Check(ctx, text) })
	}
	if err := check("add table inet t\nadd chain inet t c\n"); err != nil {
		t.Error(err)
	}
	if err := check("add rule inet t c accept\n"); err == nil {
		t.Error("a rule in a chain that is not there is taken")
	}
	if text := s.MustRun("nft", "list", "ruleset"); strings.TrimSpace(text) != "" {
		t.Errorf("checking left %s", text)
	}
}

// TestList: names of values are numbers, and what is not there is told apart.
func TestList(t *testing.T) {
	s := host(t)
	s.Nft("table inet t { set s { type ipv4_addr; elements = { 192.0.2.1 }; }\n chain c { meta l4proto tcp ct state new accept; }\n }")
	var full, terse []byte
	err := in(t, s, func(ctx context.Context) (err error) {
		if full, err = nft.List(ctx, "table", "inet", "t"); err == nil {
			terse, err = nft.ListTerse(ctx, "table", "inet", "t")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(full), "192.0.2.1") || strings.Contains(string(terse), "192.0.2.1") {
		t.Errorf("elements: full %s\nterse %s", full, terse)
	}
	if strings.Contains(string(full), `"tcp"`) || strings.Contains(string(full), `"new"`) {
		t.Errorf("names are in %s", full)
	}
	err = in(t, s, func(ctx context.Context) error {
		_, err := nft.List(ctx, "table", "inet", "absent")
		return err
	})
	if !errors.Is(err, nft.ErrNotThere) {
		t.Errorf("a table that is not there gives %v", err)
	}
}

// TestGeneration goes up with every transaction, and not without.
func TestGeneration(t *testing.T) {
	s := host(t)
	generation := func() (g uint32) {
		if err := s.Do(func() (err error) { g, err = nft.Generation(); return err }); err != nil {
			t.Fatal(err)
		}
		return g
	}
	s.Nft("add table inet t")
	first := generation()
	if second := generation(); second != first {
		t.Errorf("%d and then %d, though nothing changed", first, second)
	}
	s.Nft("add chain inet t c")
	if third := generation(); third <= first {
		t.Errorf("%d and then %d, though something changed", first, third)
	}
}

// TestChains names the chains of one table, and none where it is not.
func TestChains(t *testing.T) {
	s := host(t)
	s.Nft("add table inet t; add chain inet t a; add chain inet t b { type filter hook input priority 0; }; add table inet other; add chain inet other c; add table ip t; add chain ip t d")
	for table, want := range map[string]string{"t": "a b", "other": "c", "absent": ""} {
		err := s.Do(func() error {
			names, err := nft.Chains(table)
			if got := strings.Join(names, " "); got != want {
				t.Errorf("%s: got %q, want %q", table, got, want)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestKilled: an nft that a signal ends has no words of its own.
func TestKilled(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "nft"), []byte("#!/bin/sh\nkill -9 $$\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	if err := nft.Run(t.Context(), "add table inet t\n"); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("got %v", err)
	}
}

// TestTooLarge: where buffers cannot be raised past the machine's limit, a large
// transaction is told apart.
func TestTooLarge(t *testing.T) {
	if os.Getenv("SLUICE_NFT_TOO_LARGE") == "" {
		testnet.Require(t, testnet.Nftables)
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTooLarge$")
		cmd.Env = append(os.Environ(), "SLUICE_NFT_TOO_LARGE=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	var b strings.Builder
	b.WriteString("add table inet t\n")
	for i := range 20_000 {
		fmt.Fprintf(&b, "add counter inet t c%d { comment \"something about this counter\"; }\n", i)
	}
	err := nft.Run(t.Context(), b.String())
	if !errors.Is(err, nft.ErrTooLarge) || !strings.Contains(err.Error(), "net.core.wmem_max") {
		t.Errorf("got %v", err)
	}
}

// TestDeadline: what takes too long ends, and says why.
func TestDeadline(t *testing.T) {
	s := host(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	if err := s.Do(func() error { return nft.Run(ctx, "add table inet t\n") }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestPath: nft is found where distributions keep it, whatever the PATH.
func TestPath(t *testing.T) {
	testnet.Require(t, testnet.Probed("/usr/sbin/nft", func() error {
		_, err := os.Stat("/usr/sbin/nft")
		return err
	}))
	t.Setenv("PATH", t.TempDir())
	if v, err := nft.Version(context.Background()); err != nil || !strings.Contains(v, "nftables") {
		t.Errorf("got %q, %v", v, err)
	}
}

// TestTables of all families.
func TestTables(t *testing.T) {
	s := host(t)
	tables := func() (names []string) {
		var all []nft.Named
		if err := s.Do(func() (err error) { all, err = nft.Tables(); return err }); err != nil {
			t.Fatal(err)
		}
		for _, table := range all {
			names = append(names, nft.Families[table.Family]+" "+table.Name)
		}
		slices.Sort(names)
		return names
	}
	if got := tables(); len(got) != 0 {
		t.Errorf("an empty namespace has %v", got)
	}
	want := []string{"arp c", "bridge d", "inet a", "ip a", "ip6 b", "netdev e"}
	for _, table := range want {
		s.Nft("add table " + table)
	}
	if got := tables(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// What is loaded in one namespace is not counted in another one, whichever thread the
// socket is used by.
func TestCommitsOfEach(t *testing.T) {
	s, other := host(t), host(t)
	count := func(s *testnet.Namespace) (n uint64) {
		if err := s.Do(func() error { n = nft.Commits(); return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before, beside := count(s), count(other)
	for range 2 { // of which the kernel ignores the second
		if err := in(t, s, func(ctx context.Context) error { return nft.Run(ctx, "add table inet t\n") }); err != nil {
			t.Fatal(err)
		}
	}
	if got := count(s) - before; got != 1 {
		t.Errorf("%d transactions are counted where one was made", got)
	}
	if got := count(other) - beside; got != 0 {
		t.Errorf("%d transactions are counted beside", got)
	}
}

// TestReplaceTable: the table has what was asked for and nothing of before, in one
// transaction; what the kernel refuses changes nothing.
func TestReplaceTable(t *testing.T) {
	s := host(t)
	for _, want := range [][]string{{"one"}, {"two", "three"}, nil} {
		err := in(t, s, func(context.Context) error {
			before, err := nft.Generation()
			if err != nil {
				return err
			}
			commits := nft.Commits()
			if err := nft.ReplaceTable("plain", want...); err != nil {
				return err
			}
			after, err := nft.Generation()
			if err != nil || after-before != 1 || nft.Commits()-commits != 1 {
				t.Errorf("%d transactions, %d counted, %v", after-before, nft.Commits()-commits, err)
			}
			if err := nft.ReplaceTable("plain", "four", strings.Repeat("x", 500)); err == nil {
				t.Error("a name that is too long is taken")
			}
			have, err := nft.Chains("plain")
			if err != nil || !slices.Equal(have, want) {
				t.Errorf("chains %q, want %q, %v", have, want, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
