package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/base/addrset"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/bans"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/check"
	"sluice/internal/system/host"
	"sluice/internal/system/kernel/netns"
)

// many is how many hosts one process works on at once.
const many = 20

// oneOfMany is a host in a namespace of its own, with what none of the others has.
type oneOfMany struct {
	*Host
	t      *testing.T
	number int
	net    *testnet.Namespace
	space  *netns.Namespace
	can    backend.Capabilities
}

// policy lets a port in that no other policy does. Some have a large set.
func (o *oneOfMany) policy(port int) string {
	sources := 5 + o.number%5*400
	var of []string
	for i := range sources {
		of = append(of, fmt.Sprintf("10.%d.%d.%d", o.number, i>>7, i%128*2))
	}
	return fmt.Sprintf(`version: 1
zones:
  wan: { interfaces: [default-route] }
sets:
  served: [%s]
tracking: { table: { timeouts: { generic: %ds } } }
input:
  default: drop
  rules:
    - allow tcp/%d from served
    - allow tcp/22 in wan
`, strings.Join(of, ", "), port, port)
}

// built is a policy as it is applied, from its text on.
func (o *oneOfMany) built(ctx context.Context, port int) (in Input, err error) {
	facts, err := host.Describe(ctx)
	if err != nil {
		return in, err
	}
	o.Pristine(&facts)
	p, err := policy.Parse("policy.yaml", []byte(o.policy(port)))
	if err != nil {
		return in, err
	}
	resolved, err := resolve.Resolve(p, resolve.Options{Facts: facts})
	if err != nil {
		return in, err
	}
	if err := check.Errors(check.Run(resolved, facts)); err != nil {
		return in, err
	}
	compiled := func(without ...string) (*program.Program, error) {
		p, err := compile.Compile(resolved)
		if err != nil {
			return nil, err
		}
		return p, optimize.Run(p, optimize.Options{Without: without, NoElementCounters: o.can[backend.SetElementCounters] == backend.No})
	}
	loaded, err := compiled()
	if err != nil {
		return in, err
	}
	expected, err := compiled(optimize.Optional()...)
	if err != nil {
		return in, err
	}
	artifact, err := o.Backend.Lower(loaded, o.can)
	if err != nil {
		return in, err
	}
	settings, _ := Settings(loaded)
	return Input{
		Policy: "policy.yaml", Files: []Source{sourceOf("policy.yaml", []byte(o.policy(port)))},
		Program: loaded, Expected: expected, Artifact: artifact, Facts: facts, Sysctls: settings,
		Inputs: fmt.Sprint("inputs of ", port), Sources: resolved.Inputs,
	}, nil
}

// wantHolds looks at what is in the namespace itself: the policy of a port and nothing of
// another host's.
func (o *oneOfMany) wantHolds(port int) error {
	rules, err := o.net.Run("nft", "-nn", "list", "ruleset")
	if err != nil {
		return err
	}
	for p := range 2 * many {
		if p += 7000; strings.Contains(rules, fmt.Sprintf("dport %d ", p)) != (p == port) {
			return fmt.Errorf("port %d is let in, or should be and is not:\n%s", p, rules)
		}
	}
	if banned := fmt.Sprintf("198.51.100.%d", o.number); strings.Count(rules, "198.51.100.") != 1 || !strings.Contains(rules, banned) {
		return fmt.Errorf("not %s alone is banned:\n%s", banned, rules)
	}
	if timeout, err := o.net.GetSysctl("net.netfilter.nf_conntrack_generic_timeout"); err != nil || timeout != fmt.Sprint(port) {
		return fmt.Errorf("the sysctl is %s, want %d, %w", timeout, port, err)
	}
	return nil
}

// wantFine asks for what should be so after every change.
func (o *oneOfMany) wantFine(ctx context.Context, port int) error {
	s, err := o.Status(ctx, true)
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	if !s.Fine() {
		return fmt.Errorf("status: %+v", s)
	}
	v, err := o.Verify(ctx, "", nil)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if !v.Proved {
		return fmt.Errorf("verify: %+v", v)
	}
	return o.wantHolds(port)
}

// live is a day of a host: a policy on trial, its confirmation, a ban, the same policy
// again, another policy and the way back.
func (o *oneOfMany) live(ctx context.Context) error {
	first, second := 7000+o.number, 7000+many+o.number
	in, err := o.built(ctx, first)
	if err != nil {
		return fmt.Errorf("build: %w", err)
	}
	out, err := o.Apply(ctx, in, Options{Confirm: time.Hour, Verify: true})
	if err != nil {
		return fmt.Errorf("apply on trial: %w", err)
	}
	var own, of unix.Stat_t
	if err := errors.Join(unix.Stat("/proc/thread-self/ns/net", &own), unix.Stat(fmt.Sprintf("/proc/%d/ns/net", out.Pending.PID), &of)); err != nil || own.Ino != of.Ino {
		return fmt.Errorf("the watcher is not in the namespace: %w", err)
	}
	if _, err := o.Confirm(ctx); err != nil {
		return fmt.Errorf("confirm: %w", err)
	}
	banned, err := addrset.ParseRange(fmt.Sprintf("198.51.100.%d", o.number))
	if err != nil {
		return err
	}
	if _, err := o.Ban(ctx, Banning{List: []bans.Named{{What: banned}}}); err != nil {
		return fmt.Errorf("ban: %w", err)
	}
	same, _, err := o.ApplyUnchanged(ctx, Unchanged{Inputs: in.Inputs}, Options{Keep: true, Verify: true})
	if err != nil || same == nil || !same.Unchanged {
		return fmt.Errorf("apply the same: others' transactions are taken for foreign ones of this namespace (%+v, %w)", same, err)
	}
	if err := o.wantFine(ctx, first); err != nil {
		return err
	}
	if in, err = o.built(ctx, second); err != nil {
		return fmt.Errorf("build: %w", err)
	}
	if _, err := o.Apply(ctx, in, Options{Keep: true, Verify: true}); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	if err := o.wantFine(ctx, second); err != nil {
		return err
	}
	if _, err := o.Rollback(ctx, Before, Options{Keep: true, Verify: true}, nil); err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	if err := o.wantFine(ctx, first); err != nil {
		return err
	}
	return o.follow(ctx)
}

// follow moves the default route while the host is followed.
func (o *oneOfMany) follow(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	moved, ended := make(chan *Synced, 1), make(chan error, 1)
	go func() {
		ended <- o.space.Do(func() error { return o.Follow(ctx, func(s *Synced) { moved <- s }) })
	}()
	// The first Sync may see that it has moved; the next one is a change that was heard of.
	seen := 0
	for try := range 1200 {
		device := fmt.Sprint("d", 1+try/40%2)
		if out, err := o.net.Run("ip", "route", "replace", "default", "dev", device); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		select {
		case <-moved:
			if seen++; seen == 2 {
				stop()
				return <-ended
			}
		case err := <-ended:
			return fmt.Errorf("following ended: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return errors.New("the default route has moved, and nobody saw it")
}

// Twenty hosts of one process do everything at once, each as if it were alone: none waits
// for another's lock, takes another's transactions for its own, or touches another.
func TestManyHostsAtOnce(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	lab := testnet.New(t)
	can := nftables.New().Capabilities(t.Context())
	base := t.TempDir()
	var all []*oneOfMany
	for i := range many {
		o := &oneOfMany{t: t, number: i, net: lab.Unnamed(fmt.Sprint("host", i)), can: can}
		for _, device := range []string{"d0", "d1", "d2"} {
			o.net.MustRun("ip", "link", "add", device, "up", "type", "veth", "peer", "name", "end-of-"+device)
			o.net.MustRun("ip", "link", "set", "end-of-"+device, "up")
		}
		o.net.MustRun("ip", "route", "add", "default", "dev", "d0")
		space, err := netns.Open(o.net.Path())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = space.Close() })
		o.space = space
		o.Host = &Host{
			Dir: filepath.Join(base, fmt.Sprint(i)), Backend: nftables.New(), Kernel: Linux(), Version: "test",
			// It says that it stands, and has its token on its command line.
			Watcher: []string{"/bin/sh", "-c", "echo armed >&3; while sleep 1; do :; done"},
			systemd: "none",
		}
		all = append(all, o)
	}
	var running sync.WaitGroup
	for _, o := range all {
		running.Go(func() {
			if err := o.space.Do(func() error { return o.live(t.Context()) }); err != nil {
				t.Errorf("host %d: %v", o.number, err)
			}
		})
	}
	running.Wait()
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if tables, _, err := nftables.New().Mark(t.Context()); tables != "" || err != nil {
		t.Errorf("the namespace of the process (%s) has a mark: %q, %v", here, tables, err)
	}
	if left := slices.DeleteFunc(all, func(o *oneOfMany) bool { return len(lockHolders(o.Dir)) == 0 }); len(left) > 0 {
		t.Errorf("%d locks are held behind it", len(left))
	}
}
