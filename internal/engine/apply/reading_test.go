package apply

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sluice/internal/backend/nftables"
	"sluice/internal/base/addrset"
	"sluice/internal/language/bans"
	"sluice/internal/program"
)

// inside runs f with the host of the lab, on a thread that is in its namespace.
func (l *lab) inside(f func(ctx context.Context, h *Host) error) {
	l.t.Helper()
	h := command{Dir: l.dir}.host()
	h.Note = nil
	if err := l.ns.Do(func() error { return f(context.Background(), h) }); err != nil {
		l.t.Fatal(err)
	}
}

// apply applies the long way.
func (l *lab) apply(in Input, o Options) (out *Outcome) {
	l.t.Helper()
	l.inside(func(ctx context.Context, h *Host) (err error) {
		o.Verify = true
		out, err = h.Apply(ctx, in, o)
		return err
	})
	return out
}

// quick applies without compiling; nil is that it could not be told.
func (l *lab) quick(in Unchanged, o Options) (out *Outcome, said *Said) {
	l.t.Helper()
	o.Verify = true
	l.inside(func(ctx context.Context, h *Host) (err error) {
		out, said, err = in.Apply(ctx, h, o)
		return err
	})
	return out, said
}

func inputOf(policy, inputs string) Input {
	in := command{Policy: policy}.input()
	in.Inputs, in.Said = inputs, Said{Warnings: []string{"mind the gap"}, Notes: []string{"a note"}}
	return in
}

// TestApplyUnchanged: what is the same is told without compiling; whatever is
// not, by whoever's hand, goes the long way.
func TestApplyUnchanged(t *testing.T) {
	l := newLab(t)
	same := Unchanged{Inputs: "one", Memory: 1 << 40}
	if out, _ := l.quick(same, Options{}); out != nil {
		t.Fatalf("before anything was applied: %+v", out)
	}
	if _, err := os.Stat(filepath.Join(l.dir, lockFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("asking made a state: %v", err)
	}
	first := inputOf("a", "one")
	if out := l.apply(first, Options{}); out.Unchanged {
		t.Fatal("the first apply changed nothing")
	}
	want := &Outcome{Generation: 1, Policy: "a.yaml", Unchanged: true}
	known := func(what string) {
		t.Helper()
		out, said := l.quick(same, Options{})
		if !reflect.DeepEqual(out, want) || said == nil || !reflect.DeepEqual(*said, first.Said) {
			t.Errorf("%s: %+v, said %+v", what, out, said)
		}
	}
	unknown := func(what string, in Unchanged, o Options) {
		t.Helper()
		if out, _ := l.quick(in, o); out != nil {
			t.Errorf("%s: %+v", what, out)
		}
	}
	known("the same")

	unknown("other inputs", Unchanged{Inputs: "two"}, Options{})
	unknown("inputs that are not known", Unchanged{}, Options{})
	unknown("flows are to be cut", same, Options{Cut: true})
	unknown("memory is short", Unchanged{Inputs: "one", Memory: 1}, Options{})
	peer := SSHClient{Remote: netip.MustParseAddrPort("10.0.0.9:999"), Local: netip.MustParseAddrPort("10.0.0.1:7000")}
	unknown("somebody logged in", Unchanged{Inputs: "one", SSHClients: []SSHClient{peer}}, Options{})
	known("still the same")

	// By hand: each makes the number another, and the long way finds or fixes it.
	for _, drift := range []struct{ name, command string }{
		{"a rule gone", "flush chain inet sluice input"},
		{"a rule more", "insert rule inet sluice input accept"},
		{"an element of a static set", ""},
		{"the table gone", "delete table inet sluice"},
		{"everything gone", "flush ruleset"},
	} {
		command := drift.command
		if command == "" {
			set := strings.Fields(l.ns.MustRun("nft", "list", "sets", "inet"))
			command = "add element inet sluice " + set[slices.Index(set, "set")+1] + " { 198.51.100.7 }"
		}
		l.ns.MustRun("nft", command)
		unknown(drift.name, same, Options{})
		if out := l.apply(first, Options{}); out.Unchanged {
			t.Errorf("%s: not fixed", drift.name)
		}
		l.wantHolds("a")
		want.Generation++
		known(drift.name + ", and fixed")
	}
	// Another tool's table is none of ours, but only reading tells.
	l.ns.MustRun("nft", "add table ip foreign")
	unknown("another tool's table", same, Options{})
	if out := l.apply(first, Options{}); !out.Unchanged {
		t.Error("another tool's table is a change")
	}
	known("beside another tool's table")

	// Another policy and back: the number tells, not the inputs.
	l.apply(inputOf("b", "two"), Options{})
	unknown("another policy runs", same, Options{})
	l.must(command{Op: "rollback", N: want.Generation})
	l.wantHolds("a")
	unknown("it runs again, and was not compared with these inputs", same, Options{})
	l.apply(first, Options{})
	known("and was")
	l.must(command{Op: "remove"})
	unknown("it was removed", same, Options{})
}

// TestWitnessIsNotBelieved where it is of another boot, namespace, generation or
// form, or damaged.
func TestReadingIsNotBelieved(t *testing.T) {
	l := newLab(t)
	l.apply(inputOf("a", "one"), Options{})
	path := filepath.Join(l.dir, readingFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	st := store{dir: l.dir}
	for what, change := range map[string]func(*reading){
		"another boot":       func(w *reading) { w.Ruleset.BootID = "x" },
		"another namespace":  func(w *reading) { w.Ruleset.Namespace = "x" },
		"another number":     func(w *reading) { w.Ruleset.Number++ },
		"another mark":       func(w *reading) { w.Mark = "generation_1_0" },
		"another generation": func(w *reading) { w.Generation = 2 },
		"another format":     func(w *reading) { w.Format = format + 1 },
		"no inputs":          func(w *reading) { w.Inputs = "" },
	} {
		var w reading
		if err := st.readJSON(readingFile, &w); err != nil {
			t.Fatal(err)
		}
		change(&w)
		if err := st.writeJSON(readingFile, w); err != nil {
			t.Fatal(err)
		}
		if out, _ := l.quick(Unchanged{Inputs: "one"}, Options{}); out != nil {
			t.Errorf("%s: %+v", what, out)
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, _ := l.quick(Unchanged{Inputs: "one"}, Options{}); out == nil {
		t.Error("as it was: not believed")
	}
	if err := os.WriteFile(path, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _ := l.quick(Unchanged{Inputs: "one"}, Options{}); out != nil {
		t.Errorf("damaged: %+v", out)
	}
}

// A foreign transaction during a ban shows, however many the ban takes, and though the
// set that it fills was empty.
func TestForeignTransactionDuringBan(t *testing.T) {
	l := newLab(t)
	l.apply(inputOf("a bans", "one"), Options{})
	var list []bans.Named
	for i := range uint32(20_001) {
		from := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 11<<24+4*i)))
		list = append(list, bans.Named{What: addrset.Range{From: from, To: from.Next()}})
	}
	foreign := false
	l.inside(func(ctx context.Context, h *Host) error {
		h.at = func(point string) {
			if point == "ban journal" {
				foreign = true
				l.ns.MustRun("nft", "insert rule inet sluice input accept")
			}
		}
		_, err := h.Ban(ctx, Banning{List: list})
		return err
	})
	if out, _ := l.quick(Unchanged{Inputs: "one"}, Options{}); !foreign || out != nil {
		t.Errorf("the foreign rule is not seen: %+v", out)
	}
}

// What sync applies is no stranger's: a reading holds on. A foreign transaction beside it
// shows.
func TestSyncKeepsReading(t *testing.T) {
	l := newLab(t)
	for _, name := range []string{"wan1", "wan2"} {
		l.ns.MustRun("ip", "link", "add", name, "type", "veth", "peer", "name", "far"+name)
		l.ns.MustRun("ip", "link", "set", name, "up")
	}
	move := func(to string, foreign func()) {
		t.Helper()
		l.ns.MustRun("ip", "route", "replace", "default", "dev", to)
		l.inside(func(ctx context.Context, h *Host) error {
			h.at = func(point string) {
				if point == "synced" {
					foreign()
				}
			}
			out, err := h.Sync(ctx)
			if err == nil && len(out.Moves) != 1 {
				err = fmt.Errorf("%d moves", len(out.Moves))
			}
			return err
		})
	}
	l.ns.MustRun("ip", "route", "add", "default", "dev", "wan1")
	l.apply(inputOf("a route", "one"), Options{})
	move("wan2", func() {})
	if out, _ := l.quick(Unchanged{Inputs: "one"}, Options{}); out == nil {
		t.Error("the reading is gone")
	}
	move("wan1", func() { l.ns.MustRun("nft", "insert rule inet sluice input accept") })
	if out, _ := l.quick(Unchanged{Inputs: "one"}, Options{}); out != nil {
		t.Error("a foreign rule is not seen")
	}
}

// Of a policy that follows nothing sync does not look into the artifact, which may be large.
func TestSyncOfPolicyThatFollowsNothing(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a"})
	if err := os.RemoveAll(filepath.Join(l.dir, blobsDir)); err != nil {
		t.Fatal(err)
	}
	l.must(command{Op: "sync"})
}

// A reading that counts as of this moment though it is not is dropped by whoever finds a
// difference.
func TestDifferenceDropsReading(t *testing.T) {
	for what, look := range map[string]func(context.Context, *Host) error{
		"status": func(ctx context.Context, h *Host) error {
			_, err := h.Status(ctx, false)
			return err
		},
		"verify": func(ctx context.Context, h *Host) error {
			_, err := h.Verify(ctx, "", nil)
			return err
		},
	} {
		for _, change := range []string{"insert rule inet sluice input accept", "delete table inet sluice"} {
			l := newLab(t)
			l.apply(inputOf("a bans", "one"), Options{})
			l.inside(look)
			if out, _ := l.quick(Unchanged{Inputs: "one"}, Options{}); out == nil {
				t.Errorf("%s: nothing differs, and the reading is gone", what)
			}
			l.ns.MustRun("nft", change)
			var w reading
			st := store{dir: l.dir}
			if err := st.readJSON(readingFile, &w); err != nil {
				t.Fatal(err)
			}
			w.Ruleset.Number++
			if err := st.writeJSON(readingFile, w); err != nil {
				t.Fatal(err)
			}
			if out, _ := l.quick(Unchanged{Inputs: "one"}, Options{}); out == nil {
				t.Fatal("the reading is not believed")
			}
			l.inside(look)
			if out, _ := l.quick(Unchanged{Inputs: "one"}, Options{}); out != nil {
				t.Errorf("%s after %s: %+v", what, change, out)
			}
		}
	}
}

// A journal of bans that is not the one whose bans the kernel was seen to hold shows.
func TestOtherJournalOfBans(t *testing.T) {
	l := newLab(t)
	l.apply(inputOf("a bans", "one"), Options{})
	same := func() bool {
		out, _ := l.quick(Unchanged{Inputs: "one"}, Options{})
		return out != nil
	}
	path := filepath.Join(l.dir, bans.File)
	l.must(command{Op: "ban", What: "192.0.2.1"})
	older, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l.must(command{Op: "ban", What: "192.0.2.2"})
	newer, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !same() {
		t.Error("bans alone are a change")
	}
	for what, text := range map[string][]byte{"older": older, "empty": nil} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if same() {
			t.Errorf("the journal is not as it was (%s), and nothing is to change", what)
		}
	}
	if err := os.WriteFile(path, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	if !same() {
		t.Error("the journal is as it was")
	}
}

// TestUnread: what was loaded and not read back is enough for whoever wants no reading
// back, as long as nobody else made a transaction; and for nobody else.
func TestUnread(t *testing.T) {
	l := newLab(t)
	same := Unchanged{Inputs: "one"}
	load := func(in Input, at func(string)) {
		t.Helper()
		l.inside(func(ctx context.Context, h *Host) error {
			h.at = at
			_, err := h.Apply(ctx, in, Options{})
			return err
		})
	}
	unread := func() (out *Outcome) {
		t.Helper()
		l.inside(func(ctx context.Context, h *Host) (err error) {
			out, _, err = same.Apply(ctx, h, Options{})
			return err
		})
		return out
	}
	load(inputOf("a", "one"), nil)
	if out := unread(); out == nil {
		t.Error("loaded, and nobody else: not told")
	}
	if out, _ := l.quick(same, Options{}); out != nil {
		t.Errorf("it was not read back: %+v", out)
	}
	if out := l.apply(inputOf("a", "one"), Options{}); !out.Unchanged {
		t.Error("reading it back changes something")
	}
	if out, _ := l.quick(same, Options{}); out == nil {
		t.Error("it was read back: not told")
	}
	// A change of it that is read back reads what was not.
	load(alike("two"), nil)
	c := &counting{}
	l.inside(func(ctx context.Context, h *Host) error {
		c.Backend = h.Backend
		h.Backend = c
		_, err := h.Apply(ctx, inputOf("a", "one"), Options{Verify: true})
		return err
	})
	if c.whole == 0 {
		t.Errorf("nothing had read the sets, and nothing did: %+v", *c)
	}
	// Somebody else, before it was there and afterwards.
	for _, point := range []string{"before switch", "after switch", "end"} {
		load(alike("two"), nil)
		done := false
		load(inputOf("a", "one"), func(at string) {
			if strings.HasPrefix(at, point) && !done {
				done = true
				l.ns.MustRun("nft", "add table ip foreign_"+strings.ReplaceAll(point, " ", "_"))
			}
		})
		if out := unread(); !done || out != nil {
			t.Errorf("somebody else %s: %+v", point, out)
		}
	}
}

// TestWitnessOfNothing: who was locked out by force is told so each time.
func TestReadingOfNothing(t *testing.T) {
	l := newLab(t)
	in := inputOf("b", "two")
	in.SSHClients = []SSHClient{{Remote: netip.MustParseAddrPort("198.51.100.1:999"), Local: netip.MustParseAddrPort("10.0.0.1:22")}}
	l.apply(in, Options{Force: true, Keep: true})
	if out, _ := l.quick(Unchanged{Inputs: "two", SSHClients: in.SSHClients}, Options{Force: true, Keep: true}); out != nil {
		t.Errorf("it locks out: %+v", out)
	}
}

// TestPeersByPort: the port that a peer comes from counts where the policy asks
// for source ports like it, and else not.
func TestPeersByPort(t *testing.T) {
	peer := func(remote, local string) SSHClient {
		return SSHClient{Remote: netip.MustParseAddrPort(remote), Local: netip.MustParseAddrPort(local)}
	}
	match := program.Condition{Field: program.SourcePort, Numbers: []program.NumberRange{{From: 80, To: 81}}}
	inSet := program.Condition{Field: program.Source, Set: "s", SetKey: []program.Field{program.Source, program.SourcePort}}
	p := &program.Program{
		Sets: []program.Set{{ID: "s", Key: []program.Field{program.Destination, program.Port}, Elements: []program.Element{
			{Parts: []program.Value{{}, {Numbers: program.NumberRange{From: 443, To: 443}}}},
		}}},
		Chains: []program.Chain{{Rules: []program.Rule{{Match: []program.Condition{match, inSet}}}}},
	}
	w := &reading{Ports: sourcePorts(p)}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1:50000", "192.0.2.1:50001", true},
		{"192.0.2.1:50000", "192.0.2.2:50000", false},
		{"192.0.2.1:80", "192.0.2.1:50000", false},
		{"192.0.2.1:80", "192.0.2.1:81", false},
		{"192.0.2.1:443", "192.0.2.1:444", false},
		{"192.0.2.1:79", "192.0.2.1:82", true},
	} {
		a, b := w.known([]SSHClient{peer(c.a, "10.0.0.1:22")}), w.known([]SSHClient{peer(c.b, "10.0.0.1:22"), peer(c.b, "10.0.0.1:22")})
		if slices.Equal(a, b) != c.same {
			t.Errorf("%s and %s: the same is %v", c.a, c.b, !c.same)
		}
	}
	p.Chains[0].Rules[0].Match = append(p.Chains[0].Rules[0].Match, program.Condition{Field: program.Opaque, Text: "x"})
	w.Ports = sourcePorts(p)
	if a, b := w.known([]SSHClient{peer("192.0.2.1:1", "10.0.0.1:22")}), w.known([]SSHClient{peer("192.0.2.1:2", "10.0.0.1:22")}); slices.Equal(a, b) {
		t.Error("a rule that cannot be read may ask for any port")
	}
}

// alike is policy a with one rule less: its set stays.
func alike(inputs string) Input {
	in := inputOf("a", inputs)
	rules := in.Program.Chains[0].Rules
	in.Program.Chains[0].Rules = rules[:len(rules)-1]
	artifact, err := nftables.New().Lower(in.Program, nil)
	if err != nil {
		panic(err)
	}
	in.Artifact = artifact
	return in
}

// A sysctl that somebody changed by hand is set again by an apply of the same
// policy, the long way and without compiling.
func TestApplyFixesSysctls(t *testing.T) {
	const name = "net.netfilter.nf_conntrack_generic_timeout"
	l := newLab(t)
	in := inputOf("timeout77", "one")
	l.apply(in, Options{})
	same := Unchanged{Inputs: "one", Memory: 1 << 40}
	if out, _ := l.quick(same, Options{}); out == nil {
		t.Fatal("what runs is not known")
	}
	if err := l.ns.SetSysctl(name, "78"); err != nil {
		t.Fatal(err)
	}
	if out, _ := l.quick(same, Options{}); out != nil {
		t.Errorf("told unchanged: %+v", out)
	}
	l.apply(in, Options{})
	if got, err := l.ns.GetSysctl(name); err != nil || got != "77" {
		t.Errorf("%s is %s, want 77 (%v)", name, got, err)
	}
	if out, _ := l.quick(same, Options{}); out == nil {
		t.Error("what was fixed is not known")
	}
}
