package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/netns"
)

// many is how many hosts one process works on at once.
const many = 20

// writePolicy writes a policy that lets one port in, with a set of addresses and an
// expectation.
func writePolicy(file string, port int) error {
	return os.WriteFile(file, fmt.Appendf(nil, `version: 1
sets:
  served: [192.0.2.0/25, 198.51.100.%d]
input:
  default: drop
  rules:
    - allow tcp/%d from served
expect:
  - allow tcp/%d from 192.0.2.1
`, port%200, port, port), 0o600)
}

// day is what one host does: another policy each time, and the way back.
func day(ctx context.Context, h *engine.Host, file string, port int) error {
	var all []error
	for i := range 2 {
		if err := writePolicy(file, port+1000*i); err != nil {
			return err
		}
		plan, err := h.Plan(ctx, engine.Request{File: file})
		if err != nil {
			return fmt.Errorf("plan: %w", err)
		}
		if plan.Unchanged || plan.Refused != "" || plan.Packets == nil {
			all = append(all, fmt.Errorf("plan: %+v", plan.Plan))
		}
		out, err := h.Apply(ctx, engine.Request{File: file}, apply.Options{Keep: true, Verify: true})
		if err != nil {
			return fmt.Errorf("apply: %w", err)
		}
		if out.Generation != 1+i || out.Unchanged || out.Proof == nil || !out.Proof.Proved {
			all = append(all, fmt.Errorf("apply: %+v", out))
		}
	}
	if same, err := h.Apply(ctx, engine.Request{File: file}, apply.Options{Keep: true, Verify: true}); err != nil || !same.Unchanged {
		all = append(all, fmt.Errorf("apply the same: %+v, %w", same, err))
	}
	if back, err := h.Rollback(ctx, apply.Before, apply.Options{Keep: true, Verify: true}); err != nil || back.Generation != 1 {
		all = append(all, fmt.Errorf("roll back: %+v, %w", back, err))
	}
	s, err := h.Status(ctx, true)
	if err != nil || !s.Fine() || len(s.Edited) != 1 {
		all = append(all, fmt.Errorf("status: %+v, %w", s, err))
	}
	return errors.Join(all...)
}

// Twenty hosts of one process plan, apply and roll back at once, each in a namespace of
// its own, and each holds its own policy alone.
func TestManyHostsAtOnce(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	lab := testnet.New(t)
	base := t.TempDir()
	var running sync.WaitGroup
	for i := range many {
		net := lab.Unnamed(fmt.Sprint("host", i))
		space, err := netns.Open(net.Path())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = space.Close() })
		state := filepath.Join(base, fmt.Sprint(i))
		if err := os.Mkdir(state, 0o700); err != nil {
			t.Fatal(err)
		}
		h, err := engine.NewHost(state, "", "test")
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := space.Do(func() error { return day(t.Context(), h, filepath.Join(state, "policy.yaml"), 7000+i) }); err != nil {
				t.Errorf("host %d: %v", i, err)
				return
			}
			rules, err := net.Run("nft", "-nn", "list", "ruleset")
			for port := 7000; err == nil && port < 7000+many; port++ {
				if strings.Contains(rules, fmt.Sprintf("dport %d ", port)) != (port == 7000+i) {
					t.Errorf("host %d: port %d is let in, or should be and is not:\n%s", i, port, rules)
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
}
