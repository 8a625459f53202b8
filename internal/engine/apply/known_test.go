package apply

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// A change that fails over rules which bear no mark and were changed by hand
// takes nothing away: once, it took the whole firewall.
func TestFailureOverUnmarkedRulesKeepsThem(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a"})
	l.ns.Nft("delete table inet sluice_generation")
	l.ns.Nft("add counter inet sluice by_hand")
	names := points(t, []command{{Op: "apply", Policy: "a"}}, command{Op: "apply", Policy: "b"})
	at := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, "before switch") })
	if out, err := l.run(command{Op: "apply", Policy: "b", KillAt: fmt.Sprint(at + 1)}); err == nil {
		t.Fatalf("it was not killed: %s", out)
	}
	l.must(command{Op: "settle"})
	if out := l.ns.MustRun("nft", "list", "table", "inet", "sluice"); !strings.Contains(out, "7001") {
		t.Errorf("the rules went:\n%s", out)
	}
}

// A policy that nobody confirmed is gone with the reboot, and what is tried
// afterwards does not go back to it.
func TestUnconfirmedIsGoneWithTheReboot(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a", Confirm: time.Hour})
	after := newLab(t)
	after.dir = l.dir
	file := filepath.Join(l.dir, currentFile)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other := regexp.MustCompile(`"boot-id": *"[^"]*"`).ReplaceAll(text, []byte(`"boot-id": "of another boot"`))
	if string(other) == string(text) {
		t.Fatalf("no boot id in %s", text)
	}
	if err := os.WriteFile(file, other, 0o600); err != nil {
		t.Fatal(err)
	}
	after.must(command{Op: "apply", Policy: "b", Confirm: time.Second})
	after.await("")
	after.settled()
	if s := after.status(); s.Boot != 0 {
		t.Errorf("generation %d would boot, and nobody confirmed it", s.Boot)
	}
}

// What a policy on trial was replaced by does not go back to the trial.
func TestRollbackPassesOverATrial(t *testing.T) {
	l := newLab(t)
	l.onTrial()
	l.must(command{Op: "apply", Policy: "c"})
	l.must(command{Op: "rollback", N: -1})
	l.wantHolds("a")
}
