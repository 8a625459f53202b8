package apply

import (
	"encoding/json"
	"strings"
	"testing"
)

// verify is what Verify finds.
func (l *lab) verify() *Verified {
	l.t.Helper()
	var v Verified
	if err := json.Unmarshal([]byte(l.must(command{Op: "verify"})), &v); err != nil {
		l.t.Fatal(err)
	}
	return &v
}

// TestDisprovedGoesBack: a load that does not mean what was meant is undone, and a
// roll-back to a generation is held against what that one meant.
func TestDisprovedGoesBack(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a"})
	out, err := l.run(command{Op: "apply", Policy: "b", Expected: "c"})
	if err == nil || !strings.Contains(out, "do not do what the policy says") || !strings.Contains(out, ":7003") {
		t.Errorf("b that should have been c: %v %s", err, out)
	}
	l.wantHolds("a")
	if v := l.verify(); !v.Proved || v.Generation != 1 || v.Rules == 0 || v.Elements == 0 {
		t.Errorf("a behind it: %+v", v)
	}
	l.must(command{Op: "apply", Policy: "b"})
	l.wantHolds("b")
	l.must(command{Op: "rollback", N: 1})
	l.wantHolds("a")
}

// TestVerifyFindsWhatWasChanged: rules and what commands ban, against what a
// generation meant.
func TestVerifyFindsWhatWasChanged(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a bans"})
	if v := l.verify(); !v.Proved || v.Banned != 0 {
		t.Errorf("as it was loaded: %+v", v.Proof)
	}
	l.must(command{Op: "ban", What: "192.0.2.7 192.0.2.64-192.0.2.99 2001:db8::7"})
	if v := l.verify(); !v.Proved || v.Banned != 3 {
		t.Errorf("what is banned by command is a difference: %+v", v.Proof)
	}
	for _, change := range []struct{ text, reading string }{
		{"insert rule inet sluice input tcp dport 7999 accept", ":7999"},
		{"flush chain inet sluice input", "tcp from"},
	} {
		l.ns.MustRun("nft", strings.Fields(change.text)...)
		v := l.verify()
		if v.Proved || len(v.Differences) == 0 || !strings.Contains(v.Differences[0].Packet, change.reading) {
			t.Errorf("%s: %+v", change.text, v.Proof)
		}
	}
	l.must(command{Op: "remove"})
	if out, err := l.run(command{Op: "verify"}); err == nil || !strings.Contains(out, "no policy runs") {
		t.Errorf("of nothing: %v %s", err, out)
	}
}
