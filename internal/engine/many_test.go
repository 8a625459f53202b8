package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/bans"
	"sluice/internal/system/kernel/netns"
	"sluice/internal/system/kernel/nft"
)

// many is how many hosts one process works on at once.
const many = 20

// oneOfMany is a host in a namespace of its own, with what none of the others has.
type oneOfMany struct {
	*engine.Host
	number int
	file   string // of its policy
	net    *testnet.Namespace
}

// lets makes a policy that lets a port in which no other one does. Some have a large set.
func (o *oneOfMany) lets(port int) (engine.Request, error) {
	sources := 5 + o.number%5*400
	var of []string
	for i := range sources {
		of = append(of, fmt.Sprintf("10.%d.%d.%d", o.number, i>>7, i%128*2))
	}
	text := fmt.Sprintf(`version: 1
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
expect:
  - allow tcp/%d from %s
`, strings.Join(of, ", "), port, port, port, of[0])
	return engine.Request{File: o.file}, os.WriteFile(o.file, []byte(text), 0o600)
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

// wantUntouched checks whether what was seen of the kernel is still taken for what it
// holds, behind a change of this process's own.
func (o *oneOfMany) wantUntouched() error {
	text, err := os.ReadFile(filepath.Join(o.Dir, "witness.json"))
	if err != nil {
		return err
	}
	var seen struct{ Ruleset struct{ Number uint32 } }
	if err := json.Unmarshal(text, &seen); err != nil {
		return err
	}
	return o.Netns.Do(func() error {
		now, err := nft.Generation()
		if err == nil && now != seen.Ruleset.Number {
			err = fmt.Errorf("another host's transactions are taken for foreign ones of this one: generation %d was seen, now it is %d", seen.Ruleset.Number, now)
		}
		return err
	})
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
	v, err := o.Verify(ctx, nil, true)
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
	policy, err := o.lets(first)
	if err != nil {
		return err
	}
	plan, err := o.Plan(ctx, policy)
	if err != nil || plan.Unchanged || plan.Refused != "" || plan.Packets == nil {
		return fmt.Errorf("plan: %+v, %w", plan, err)
	}
	out, err := o.Apply(ctx, policy, apply.Options{Confirm: time.Hour, Verify: true})
	if err != nil {
		return fmt.Errorf("apply on trial: %w", err)
	}
	err = o.Netns.Do(func() error {
		own, err := os.Readlink("/proc/thread-self/ns/net")
		of, failed := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", out.Pending.PID))
		if err = errors.Join(err, failed); err == nil && own != of {
			err = fmt.Errorf("the watcher is in %s and not in %s", of, own)
		}
		return err
	})
	if err != nil {
		return err
	}
	if _, err := o.Confirm(ctx); err != nil {
		return fmt.Errorf("confirm: %w", err)
	}
	banned, err := addrset.ParseRange(fmt.Sprintf("198.51.100.%d", o.number))
	if err != nil {
		return err
	}
	if _, err := o.Ban(ctx, apply.Banning{List: []bans.Named{{What: banned}}}); err != nil {
		return fmt.Errorf("ban: %w", err)
	}
	if err := o.wantUntouched(); err != nil {
		return err
	}
	if same, err := o.Apply(ctx, policy, apply.Options{Keep: true, Verify: true}); err != nil || !same.Unchanged {
		return fmt.Errorf("apply the same: %+v, %w", same, err)
	}
	if err := o.wantFine(ctx, first); err != nil {
		return err
	}
	if policy, err = o.lets(second); err != nil {
		return err
	}
	if _, err := o.Apply(ctx, policy, apply.Options{Keep: true, Verify: true}); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	if err := o.wantFine(ctx, second); err != nil {
		return err
	}
	if back, err := o.Rollback(ctx, apply.Before, apply.Options{Keep: true, Verify: true}); err != nil || back.Generation != 1 {
		return fmt.Errorf("roll back: %+v, %w", back, err)
	}
	if s, err := o.Status(ctx, false); err != nil || len(s.Edited) != 1 {
		return fmt.Errorf("status: %+v, %w", s, err)
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
	moved, ended := make(chan *apply.Synced), make(chan error, 1)
	go func() {
		ended <- o.Follow(ctx, func(s *apply.Synced) {
			select {
			case moved <- s:
			case <-ctx.Done():
			}
		})
	}()
	// The first Sync may see that it has moved; the next one is a change that was heard of.
	for _, device := range []string{"d1", "d2"} {
		if out, err := o.net.Run("ip", "route", "replace", "default", "dev", device); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		select {
		case <-moved:
		case err := <-ended:
			return fmt.Errorf("following ended: %w", err)
		case <-time.After(10 * time.Minute):
			return fmt.Errorf("the default route has moved to %s, and nobody saw it", device)
		}
	}
	stop()
	return <-ended
}

// Twenty hosts of one process do everything at once, each as if it were alone: none waits
// for another's lock, takes another's transactions for its own, or touches another.
func TestManyHostsAtOnce(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	lab := testnet.New(t)
	state := t.TempDir()
	var all []*oneOfMany
	for i := range many {
		h, err := engine.NewHost(state, "", "test")
		if err != nil {
			t.Fatal(err)
		}
		h.Dir = filepath.Join(state, "hosts", fmt.Sprint(i))
		// It says that it stands, and has its token on its command line.
		h.Watcher = []string{"/bin/sh", "-c", "echo armed >&3; while sleep 1; do :; done"}
		o := &oneOfMany{Host: h, number: i, file: filepath.Join(t.TempDir(), "policy.yaml"), net: lab.Unnamed(fmt.Sprint("host", i))}
		if h.Netns, err = netns.Open(o.net.Path()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.Netns.Close() })
		for _, device := range []string{"d0", "d1", "d2"} {
			o.net.MustRun("ip", "link", "add", device, "up", "type", "veth", "peer", "name", "end-of-"+device)
			o.net.MustRun("ip", "link", "set", "end-of-"+device, "up")
		}
		o.net.MustRun("ip", "route", "add", "default", "dev", "d0")
		all = append(all, o)
	}
	var running sync.WaitGroup
	for _, o := range all {
		running.Go(func() {
			if err := o.live(t.Context()); err != nil {
				t.Errorf("host %d: %v", o.number, err)
			}
		})
	}
	running.Wait()
}

// No method of apply.Host that speaks to the kernel is used as it is, in whichever
// namespace the caller's thread is.
func TestMethodsAreBound(t *testing.T) {
	of := reflect.TypeFor[*engine.Host]()
	bound := 0
	for m := range of.Methods() {
		if m.Type.NumIn() < 2 || m.Type.In(1) != reflect.TypeFor[context.Context]() {
			continue
		}
		if file, _ := runtime.FuncForPC(m.Func.Pointer()).FileLine(m.Func.Pointer()); file == "<autogenerated>" {
			t.Errorf("%s is that of apply.Host", m.Name)
		}
		bound++
	}
	if bound < 10 {
		t.Errorf("%d methods were looked at", bound)
	}
}
