package faults

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
	"sluice/internal/lab/testnet"
)

// TestInNamespaces has real controllers and agents live through faults of the machines and
// of the network between them, while packets are sent. The short form is of what differs
// most.
func TestInNamespaces(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		short bool
		fault func(f *real)
	}{
		{"killed", true, killed},
		{"stopped", false, stopped},
		{"cut to the controller", false, func(f *real) { f.cutOff(true, false) }},
		{"cut from the controller", true, func(f *real) { f.cutOff(false, true) }},
		{"cut both ways", false, func(f *real) { f.cutOff(true, true) }},
		{"disk of the controller full", false, controllerFull},
		{"disk of a host full", true, hostFull},
		{"disk of a host nearly full", false, hostNearlyFull},
		{"clock of a host a day ahead", false, func(f *real) { f.clockOff(26 * time.Hour) }},
		{"clock of a host a day behind", false, func(f *real) { f.clockOff(-26 * time.Hour) }},
		{"agents a level older", false, older},
		{"dead for 40 days", true, dead},
		{"an older database restored", false, restored},
	} {
		t.Run(strings.ReplaceAll(test.name, " ", "-"), func(t *testing.T) {
			if testing.Short() && !test.short {
				t.Skip("long form only: the fleets of others fail much alike")
			}
			t.Parallel()
			f := newReal(t, "")
			f.join()
			test.fault(f)
			f.end()
		})
	}
}

// killed has the controller die once a bundle is published.
func killed(f *real) {
	f.release()
	f.kill()
	f.await()
	f.run()
}

// await waits until each host knows that no controller is there, and what it enforced goes on.
func (f *real) await(lost ...*machine) {
	f.Helper()
	if len(lost) == 0 {
		lost = f.machines
	}
	for _, h := range lost {
		h.hears("no controller reached since")
		if h.enforces() == 0 {
			f.Errorf("%s enforces nothing", h.id)
		}
	}
}

// stopped has the controller be stopped as it rolls a bundle out, with all connections open.
func stopped(f *real) {
	f.release()
	f.signal(syscall.SIGSTOP)
	f.await()
	f.signal(syscall.SIGCONT)
}

// cutOff loses what one host says to the controller, or hears of it, while a bundle goes out.
func (f *real) cutOff(to, from bool) {
	f.Helper()
	h := f.machines[0]
	if to {
		f.cut(h.at, controllerHost)
	}
	if from {
		f.cut(controllerHost, h.at)
	}
	f.release()
	f.await(h)
	f.fix()
}

// TestChangedByHand has somebody do on hosts what no fleet does: packets show it, and the
// promises are broken.
func TestChangedByHand(t *testing.T) {
	if testing.Short() {
		t.Skip("long form only: it judges the tests, and nothing else")
	}
	t.Parallel()
	f := newReal(t, "")
	f.join()
	for i, rule := range []string{"flush ruleset", "insert rule inet sluice input tcp dport " + fmt.Sprint(firstPort+2) + " accept"} {
		f.machines[i].space.MustRun("nft", strings.Fields(rule)...)
		f.until("packets show it", func() string {
			if is := f.machines[i].enforces(); is == 1 {
				return f.machines[i].id
			}
			return ""
		})
	}
	broken := fmt.Sprint(f.judged())
	for _, want := range []string{"web-1 enforces nothing any more, after bundle 1", "web-2 enforces bundle -1, which nobody signed"} {
		if !strings.Contains(broken, want) {
			t.Errorf("%s: %s", want, broken)
		}
	}
}

// confine puts a folder, which nobody uses now, on a file system of so many megabytes.
func (f *real) confine(dir string, megabytes int) {
	f.Helper()
	check(os.Rename(dir, dir+".was"))
	check(os.Mkdir(dir, 0o700))
	if err := unix.Mount("sluice-test", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0700", megabytes)); err != nil {
		testnet.Lacks(f, "file systems to mount", err)
	}
	f.Cleanup(func() { check(unix.Unmount(dir, unix.MNT_DETACH)) })
	if out, err := exec.Command("cp", "-a", dir+".was/.", dir).CombinedOutput(); err != nil {
		f.Fatalf("%v: %s", err, out)
	}
	check(os.RemoveAll(dir + ".was"))
}

// controllerFull has the controller's disk take nothing while somebody publishes.
func controllerFull(f *real) {
	f.kill()
	f.confine(f.dir, 8)
	f.run()
	empty := fill(f.T, f.dir, 0)
	f.sign()
	if err := f.publish(); err == nil || !strings.Contains(err.Error(), "full") && !strings.Contains(err.Error(), "no space") {
		f.Errorf("with a full disk a bundle is published: %v", err)
	}
	f.until("the controller says so", func() string {
		is := must(f.client.Status(f.Context()))
		if is.Hosts != 2 {
			return "it has lost hosts"
		}
		return ""
	})
	empty()
	if err := f.publish(); err != nil {
		f.Error(err)
	}
}

// confined gives the first host a small disk.
func (f *real) confined() *machine {
	f.Helper()
	h := f.machines[0]
	h.agent.Stop()
	f.confine(h.state, 8)
	h.start()
	f.until("it is back", func() string { return h.shown(func(s string) bool { return !strings.Contains(s, "offline") }) })
	return h
}

// hostNearlyFull has a disk be full at some point of what a host writes of a bundle.
func hostNearlyFull(f *real) {
	h := f.confined()
	for _, room := range []int64{2, 5, 10, 20, 40, 80} {
		empty := fill(f.T, h.state, room)
		f.release()
		f.until(fmt.Sprintf("with room for %d pages it takes the bundle, or says why not", room), func() string {
			if h.enforces() == f.newest {
				return ""
			}
			return h.shown(func(s string) bool { return strings.Contains(s, "no space left") })
		})
		f.Logf("with room for %d pages: bundle %d of %d, %s", room, h.enforces(), f.newest, h.shown(func(string) bool { return false }))
		empty()
		f.release()
		f.all(f.newest)
	}
}

// hostFull has the disk of a host take nothing while a bundle goes out.
func hostFull(f *real) {
	h := f.confined()
	empty := fill(f.T, h.state, 0)
	f.release()
	f.until("the controller says why", func() string {
		return h.shown(func(s string) bool { return strings.Contains(s, "no space left") })
	})
	if h.enforces() != 1 {
		f.Errorf("with a full disk %s enforces bundle %d", h.id, h.enforces())
	}
	empty()
	f.until("it says no more", func() string {
		return h.shown(func(s string) bool { return !strings.Contains(s, "no space left") })
	})
}

// shown is what "hosts" says of it, "" once that is enough.
func (h *machine) shown(enough func(string) bool) string {
	is := must(h.f.client.Hosts(h.f.Context(), "host="+h.id)).Hosts[0]
	if text := fmt.Sprint(is.State, ": ", is.Reason); !enough(text) {
		return text
	}
	return ""
}

// clockOff sets the clock of a host wrong, and has its agent start again.
func (f *real) clockOff(by time.Duration) {
	f.Helper()
	h := f.machines[0]
	h.setClock(by)
	f.release()
	if by < 0 {
		h.agent.Stop()
		h.start()
	}
	h.hears("the clock here says")
	if by > 0 { // with one that is behind it believes no controller, and is offline
		f.until("the controller says so", func() string {
			return h.shown(func(s string) bool { return strings.Contains(s, "the clock here says") })
		})
	}
	if is := h.enforces(); is != 1 {
		f.Errorf("with a wrong clock %s enforces bundle %d", h.id, is)
	}
	h.setClock(0)
	f.until("it takes what it did not", func() string {
		if h.enforces() != f.newest {
			return fmt.Sprint(h.enforces())
		}
		return ""
	})
}

// older has agents that are a level of the protocol older than their controller, and then two.
func older(f *real) {
	f.kill()
	f.env = []string{fmt.Sprintf("%s=%d,%d", levelsVariable, wire.Level+1, wire.Level)}
	f.run()
	f.release()
	f.all(f.newest)
	s := must(store.OpenExisting(f.Context(), f.database))
	for _, h := range must(s.Hosts(f.Context())) {
		if h.Protocol != wire.Level {
			f.Errorf("%s speaks level %d", h.ID, h.Protocol)
		}
	}
	check(s.Close())
	f.kill()
	f.env = []string{fmt.Sprintf("%s=%d,%d", levelsVariable, wire.Level+2, wire.Level+1)}
	f.run()
	for _, h := range f.machines {
		h.hears("upgrade the older of the two")
	}
	f.kill()
	f.env = nil
	f.run()
}

// dead has no controller be there for 40 days, in which all certificates end. A host that was
// revoked before gets no other one.
func dead(f *real) {
	const gone = 40 * 24 * time.Hour
	revoked := f.machines[1]
	f.must("revoke", revoked.id)
	revoked.left = true
	f.kill()
	for _, h := range f.machines {
		h.setClock(gone)
	}
	before := f.machines[0].expires()
	f.machines[0].agent.Stop()
	f.machines[0].start()
	f.await()
	f.clock, f.ahead = filepath.Join(filepath.Dir(f.dir), "clock"), gone
	check(os.WriteFile(f.clock, []byte(gone.String()), 0o600))
	f.run()
	f.until("it has another certificate", func() string {
		if now := f.machines[0].expires(); now.Sub(before) < gone/2 {
			return now.String()
		}
		return ""
	})
	revoked.hears("web-2 is revoked since")
	if is := revoked.enforces(); is != 1 || revoked.expires().After(before.Add(time.Hour)) {
		f.Errorf("revoked, it enforces bundle %d with a certificate until %s", is, revoked.expires())
	}
}

// expires is when its certificate does.
func (h *machine) expires() time.Time {
	text := must(os.ReadFile(h.path("key.pem")))
	for {
		block, rest := pem.Decode(text)
		if block.Type == "CERTIFICATE" {
			return must(x509.ParseCertificate(block.Bytes)).NotAfter
		}
		text = rest
	}
}

// restored puts a backup back that was made while the controller ran, and is a bundle older.
func restored(f *real) {
	f.until("the roll-out is over", func() string {
		if r := must(f.client.Rollouts(f.Context(), 1))[0]; r.State.Phase != rollout.Done {
			return string(r.State.Phase)
		}
		return ""
	})
	backup := filepath.Join(memory(f.T), "fleet.backup")
	f.must("backup", "--dir", f.dir, "--keys", backup)
	f.harvest()
	copied, at := f.audit.clone(), time.Now()
	f.release()
	f.all(f.newest)
	f.kill()
	check(os.Rename(f.dir, f.dir+"-lost"))
	f.must("restore", "--dir", f.dir, backup)
	f.history.Add(Event{Kind: Restored, Until: at})
	f.audit = copied
	f.run()
	f.until("the hosts are back", func() string {
		if n := must(f.client.Status(f.Context())).Online; n != len(f.machines) {
			return fmt.Sprint(n)
		}
		return ""
	})
	for _, h := range f.machines {
		if is := h.enforces(); is != f.newest {
			f.Errorf("by the older database %s enforces %d", h.id, is)
		}
	}
	f.release("--restore")
}
