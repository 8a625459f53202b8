package drift

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/agent/alert"
	"sluice/internal/base/addrset"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/lab/peers"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/bans"
)

// What others change is told of in packets, with who did it, and once; and once when it is
// over.
func TestFound(t *testing.T) {
	h := newHost(t)
	h.begin()
	h.settled()
	h.wantPorts(80, 7000)
	for _, c := range []struct {
		name  string
		needs []testnet.Feature
		do    func()
		kind  apply.FindingKind
		text  string
		line  string
		ports []uint16
		undo  func() // nil: Restore
	}{
		{"flush", nil, func() { h.net.Nft("flush ruleset") }, apply.FoundGone, "every packet passes", "", []uint16{80, 81, 7000}, nil},
		{"rules of a chain", nil, func() { h.net.Nft("flush chain inet sluice input") }, apply.FoundPacket, "the kernel", "", nil, nil},
		{"element of a set", nil, func() { h.net.Nft("delete element inet sluice " + h.set() + " { 10.0.0.2 }") }, apply.FoundPacket, "10.0.0.2", "policy.yaml:9", []uint16{80}, nil},
		{"mark", nil, func() { h.net.Nft("delete table inet sluice_generation") }, apply.FoundMark, "sluice_generation", "", []uint16{80, 7000}, nil},
		{"sysctl", nil, func() { h.net.Sysctl("net.netfilter.nf_conntrack_generic_timeout", "78") }, apply.FoundSysctl, "is 78 and should be 77", "", []uint16{80, 7000}, nil},
		{"lifted exception", nil, h.loseException, apply.FoundException, "10.0.0.2 to tcp/81 is still allowed by the rules", "", []uint16{80, 81, 7000}, nil},
		{"foreign chain", nil, func() {
			h.net.Nft("table ip foreign { chain c { type filter hook input priority -5; tcp dport 80 drop; }; }")
		}, apply.FoundChain, "can drop", "", []uint16{7000}, func() { h.net.Nft("delete table ip foreign") }},
		{"legacy iptables", []testnet.Feature{testnet.Program("iptables-legacy"), testnet.IPTablesLegacy("filter")}, func() {
			h.net.MustRun("iptables-legacy", "-A", "INPUT", "-p", "tcp", "--dport", "80", "-j", "DROP")
		}, apply.FoundChain, "legacy iptables", "", []uint16{7000}, func() { h.net.MustRun("iptables-legacy", "-F", "INPUT") }},
		{"filter of tc", []testnet.Feature{testnet.Program("tc")}, func() {
			h.net.MustRun("tc", "qdisc", "add", "dev", "eth0", "clsact")
			if _, err := h.net.Run("tc", "filter", "add", "dev", "eth0", "ingress", "protocol", "ip", "u32", "match", "ip", "dport", "7000", "0xffff", "classid", "1:1"); err != nil {
				h.net.MustRun("tc", "qdisc", "del", "dev", "eth0", "clsact")
				testnet.Lacks(h.t, "filter u32 of tc", err)
			}
		}, apply.FoundBeside, "eth0", "", []uint16{80, 7000}, func() { h.net.MustRun("tc", "qdisc", "del", "dev", "eth0", "clsact") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			testnet.Require(t, c.needs...)
			h.t = t
			c.do()
			f := h.wantDrift(c.kind, c.text)
			if !strings.Contains(f.Line, c.line) {
				t.Errorf("it is of %q, want %s", f.Line, c.line)
			}
			if byNft := strings.HasPrefix(f.By, "nft (process "); f.Since.IsZero() || byNft != (c.kind == apply.FoundGone || c.kind == apply.FoundPacket || c.kind == apply.FoundMark) && c.kind != apply.FoundChain {
				t.Errorf("%+v", f)
			}
			h.wantPorts(c.ports...)
			if c.undo == nil {
				c.undo = func() {
					if _, err := h.Restore(t.Context(), apply.Restoring{}); err != nil {
						t.Fatal(err)
					}
				}
			}
			c.undo()
			h.next(alert.Over)
			h.wantPorts(80, 7000)
		})
	}
	h.t = t
	// Another agent knows what was told.
	h.net.Nft("flush chain inet sluice input")
	h.wantDrift(apply.FoundPacket, "")
	h.begin()
	h.settled()
}

// What Sluice's own commands do is no drift, whatever they do.
func TestCommandsAreNoDrift(t *testing.T) {
	h := newHost(t)
	h.begin()
	h.settled()
	ctx := t.Context()
	ban := func(text string) []bans.Named {
		r, err := addrset.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		return []bans.Named{{What: r}}
	}
	steps := map[string]func() error{
		"0 another policy":  func() error { h.apply(strings.ReplaceAll(policy, "tcp/80", "tcp/81")); return nil },
		"1 ban":             func() error { _, err := h.Ban(ctx, apply.Banning{List: ban("198.51.100.1")}); return err },
		"2 ban of a prefix": func() error { _, err := h.Ban(ctx, apply.Banning{List: ban("198.51.100.0/24")}); return err },
		"3 unban":           func() error { _, err := h.Unban(ctx, ban("198.51.100.1")); return err },
		"4 sync":            func() error { _, err := h.Sync(ctx); return err },
		"5 back":            func() error { _, err := h.Rollback(ctx, apply.Before, apply.Options{Keep: true}); return err },
		"6 not read back": func() error {
			if err := os.WriteFile(h.file, []byte(policy+"# again\n"+"forward: { default: drop }\n"), 0o600); err != nil {
				return err
			}
			_, err := h.Apply(ctx, engine.Request{File: h.file}, apply.Options{Keep: true})
			return err
		},
		"7 trial": func() error {
			if err := os.WriteFile(h.file, []byte(policy), 0o600); err != nil {
				return err
			}
			_, err := h.Apply(ctx, engine.Request{File: h.file}, apply.Options{Confirm: time.Hour, Verify: true})
			return err
		},
		"8 confirm": func() error { _, err := h.Confirm(ctx); return err },
		"9 remove":  func() error { _, err := h.Remove(ctx); return err },
	}
	var names []string
	for name := range steps {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := steps[name](); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if name == "4 sync" || name == "8 confirm" {
			h.settled()
		}
	}
	h.apply(policy)
	h.settled()
	if n := len(h.alerts); n > 0 {
		t.Errorf("%d alerts: %s", n, (<-h.alerts).Text)
	}
}

// What another tool does while a command changes the rules, or while they are proved, is
// not taken for the command's.
func TestChangeMeanwhile(t *testing.T) {
	h := newHost(t)
	h.begin()
	h.settled()
	n := 0
	foreign := func() {
		n++
		h.net.Nft(fmt.Sprintf("table ip foreign%d { chain c { type filter hook input priority -5; tcp dport 81 drop; }; }", n))
	}
	gone := func() {
		h.t.Helper()
		h.net.Nft(fmt.Sprintf("delete table ip foreign%d", n))
		h.next(alert.Over)
	}
	told := false
	h.Progress = func(apply.Progress) {
		if !told {
			told = true
			foreign()
		}
	}
	h.apply(strings.ReplaceAll(policy, "tcp/80", "tcp/81"))
	h.Progress = nil
	if !told {
		t.Fatal("nothing happened meanwhile")
	}
	h.wantDrift(apply.FoundChain, "foreign1")
	gone()

	once := sync.OnceFunc(func() { h.net.Nft("flush chain inet sluice input") })
	h.end()
	h.duringVerify = once
	h.begin()
	foreign()
	h.wantDrift(apply.FoundPacket, "")
}

// What a command fixes while it is proved is no drift, also where that command is still at
// work behind the proof: what was read then is of two rulesets.
func TestFixedMeanwhile(t *testing.T) {
	h := newHost(t)
	h.begin()
	h.settled()
	h.end()
	fixed := make(chan struct{})
	h.duringVerify = sync.OnceFunc(func() {
		if _, err := h.Restore(t.Context(), apply.Restoring{}); err != nil {
			t.Error(err)
		}
		h.busy.Store(1)
		close(fixed)
	})
	h.begin()
	h.net.Nft("flush chain inet sluice input")
	select {
	case <-fixed:
	case <-time.After(enough):
		t.Fatal("nothing was proved")
	}
	h.settled()
}

// With restore, what should run is put back and proved, whoever is at work just then; three
// times in ten minutes, and no more until somebody restores it.
func TestRestore(t *testing.T) {
	h := newHost(t)
	h.restores = true
	h.begin()
	h.settled()
	ctx := t.Context()
	element := h.set()
	for i, do := range []func(){
		func() { h.net.Nft("flush ruleset") },
		func() { h.net.Nft("delete element inet sluice " + element + " { 10.0.0.2 }") },
		h.loseException,
	} {
		do()
		h.next(alert.Drift)
		h.next(alert.Restored)
		h.wantPorts(80, 7000)
		v, err := h.Verify(ctx, nil, true)
		if err != nil || !v.Proved {
			t.Fatalf("%d: %+v %v", i, v, err)
		}
		if i == 0 {
			h.begin() // it is remembered
		}
	}
	h.next(alert.Stopped)
	h.begin()
	h.net.Nft("flush ruleset")
	h.next(alert.Drift)
	h.begin()
	found, err := h.Watched()
	if err != nil || found.Stopped.IsZero() || len(found.Findings) != 1 {
		t.Errorf("%+v %v", found, err)
	}
	h.wantPorts(80, 81, 7000)
	if _, err := h.Restore(ctx, apply.Restoring{}); err != nil {
		t.Fatal(err)
	}
	h.next(alert.Over)
	h.net.Nft("flush ruleset")
	h.next(alert.Drift)
	h.next(alert.Restored)
	h.wantPorts(80, 7000)

	// Where nothing is put back, drift is reported anyway.
	h.keeps.Store(true)
	h.net.Nft("flush ruleset")
	h.next(alert.Drift)
	h.wantPorts(80, 81, 7000)
	if _, err := h.Restore(ctx, apply.Restoring{}); err != nil {
		t.Fatal(err)
	}
	h.next(alert.Over)
	h.keeps.Store(false)

	// A trial is not ended by it.
	if err := os.WriteFile(h.file, []byte(strings.ReplaceAll(policy, "tcp/80", "tcp/81")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Apply(ctx, engine.Request{File: h.file}, apply.Options{Confirm: time.Hour, Verify: true}); err != nil {
		t.Fatal(err)
	}
	h.net.Nft("flush chain inet sluice input")
	h.wantDrift(apply.FoundPacket, "")
	h.settled()
	if s, err := h.Status(ctx, false); err != nil || s.Pending == nil {
		t.Errorf("%+v %v", s, err)
	}
}

// Other firewalls that are started and stopped beside it.
func TestOthers(t *testing.T) {
	h := newHost(t)
	h.begin()
	h.settled()
	t.Run("firewalld", func(t *testing.T) {
		testnet.Require(t, testnet.Program("firewalld"), testnet.Program("firewall-cmd"), testnet.Program("dbus-daemon"))
		h.t = t
		f, err := peers.StartFirewalld(t.Context(), h.net, peers.FirewalldFiles(peers.Meaning{}))
		if err != nil {
			t.Fatal(err)
		}
		found := h.wantDrift(apply.FoundChain, "table inet firewalld")
		if !strings.Contains(found.By, "firewalld") {
			t.Errorf("by %q", found.By)
		}
		if err := f.Stop(); err != nil {
			t.Fatal(err)
		}
		h.net.Nft("delete table inet firewalld")
		h.over("firewalld")
		h.wantPorts(80, 7000)
	})
	t.Run("ufw", func(t *testing.T) {
		named, err := peers.Named("ufw")
		if err != nil {
			t.Fatal(err)
		}
		testnet.Require(t, named[0].Needs()...)
		h.t = t
		if err := named[0].Load(t.Context(), h.net, peers.Meaning{}); err != nil {
			t.Fatal(err)
		}
		h.wantDrift(apply.FoundChain, "chain INPUT")
		for _, program := range []string{"iptables", "ip6tables"} {
			h.net.MustRun(program, "-P", "INPUT", "ACCEPT")
			h.net.MustRun(program, "-P", "FORWARD", "ACCEPT")
			h.net.MustRun(program, "-F")
		}
		h.over("chain INPUT")
		h.wantPorts(80, 7000)
	})
	t.Run("docker", func(t *testing.T) {
		testnet.Require(t, peers.DockerNeeds()...)
		h.t = t
		docker, err := peers.StartDocker(t.Context(), h.net)
		if err != nil {
			t.Fatal(err)
		}
		running := true
		defer func() {
			if running {
				_ = docker.Stop()
			}
		}()
		h.wantDrift(apply.FoundChain, "FORWARD")
		h.wantPorts(80, 7000)
		if err := docker.Publish(t.Context(), 8081); err != nil {
			t.Fatal(err)
		}
		published := testnet.TCPTry{To: netip.MustParseAddrPort("10.0.0.1:8081"), Patience: enough}
		if r := h.client.TryTCP(published); r.Outcome != testnet.Answered {
			t.Errorf("the published port, where nothing says who is forwarded: %s", r)
		}
		h.wantPorts(80, 7000)
		running = false
		if err := docker.Stop(); err != nil {
			t.Fatal(err)
		}
		h.net.MustRun("iptables", "-P", "FORWARD", "ACCEPT")
		for _, table := range []string{"nat", "filter"} {
			h.net.MustRun("iptables", "-t", table, "-F")
			h.net.MustRun("iptables", "-t", table, "-X")
		}
		h.over("FORWARD")
		h.wantPorts(80, 7000)
	})
}

// What cannot be proved is told of, and no reason to put anything back.
func TestUnproved(t *testing.T) {
	h := newHost(t)
	h.restores = true
	h.begin()
	h.settled()
	h.end()
	var fails atomic.Bool
	fails.Store(true)
	h.verifyFails = func() error {
		if fails.Load() {
			return errors.New("no memory")
		}
		return nil
	}
	h.begin()
	h.net.Nft("add table inet settled; add chain inet settled c { type filter hook input priority 7; policy drop; }")
	h.wantDrift(apply.FoundUnproved, "no memory")
	fails.Store(false)
	h.net.Nft("add table inet again")
	h.wantDrift(apply.FoundChain, "chain c of table inet settled")
	if a := h.next(alert.Over); !strings.Contains(a.Text, "no memory") {
		t.Error(a.Text)
	}
}
