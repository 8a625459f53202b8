package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/system/kernel/conntrack"
	"sluice/internal/system/kernel/sysctl"
)

const (
	tunedWait  = "net.netfilter.nf_conntrack_tcp_timeout_time_wait"
	tunedClose = "net.netfilter.nf_conntrack_tcp_timeout_close_wait"
)

// tuned is a command that sets both to 33 and 44.
func tuned(confirm time.Duration, persist bool) command {
	return command{Op: "tune", Tuning: Tuning{
		For: TuneTable, Confirm: confirm, Persist: persist,
		Settings: []Setting{{tunedWait, "33"}, {tunedClose, "44"}},
	}}
}

// tracked is a lab where connections are tracked, so that the settings are there.
func tracked(t *testing.T) *lab {
	t.Helper()
	l := newLab(t)
	l.ns.Nft("table inet t { chain c { type filter hook input priority 0; ct state new accept; }; }")
	return l
}

func (l *lab) settings() string {
	l.t.Helper()
	var wait, closing string
	if err := l.ns.Do(func() (err error) {
		if wait, err = sysctl.Read(tunedWait); err == nil {
			closing, err = sysctl.Read(tunedClose)
		}
		return err
	}); err != nil {
		l.t.Fatal(err)
	}
	return wait + " " + closing
}

func (l *lab) wantSettings(want string) {
	l.t.Helper()
	if got := l.settings(); got != want {
		l.t.Errorf("the settings are %s, want %s", got, want)
	}
}

func (l *lab) record() *tuning {
	l.t.Helper()
	k, err := store{dir: l.dir}.tuning()
	if err != nil {
		l.t.Fatal(err)
	}
	return k
}

// untuned holds that nothing of a tuning is left.
func (l *lab) untuned(etc string) {
	l.t.Helper()
	l.wantSettings("120 60")
	if _, err := os.Stat(filepath.Join(l.dir, tunedFile)); !errors.Is(err, fs.ErrNotExist) {
		l.t.Errorf("a record is left: %+v", l.record())
	}
	if left, _ := filepath.Glob(filepath.Join(etc, "*", "*")); etc != "" && len(left) != 0 {
		l.t.Errorf("files are left: %q", left)
	}
}

// TestTuneKilledAtEveryPoint: whatever a kill leaves, the next command sees all of the
// settings or none, and revert takes everything back, the files of boot too.
func TestTuneKilledAtEveryPoint(t *testing.T) {
	for name, run := range map[string]command{"kept": tuned(0, true), "on trial": tuned(time.Hour, false)} {
		t.Run(name, func(t *testing.T) {
			l := tracked(t)
			run.Trace, run.Etc = filepath.Join(t.TempDir(), "trace"), t.TempDir()
			l.must(run)
			l.wantSettings("33 44")
			l.must(command{Op: "untune", Etc: run.Etc})
			l.untuned(run.Etc)
			text, err := os.ReadFile(run.Trace)
			if err != nil {
				t.Fatal(err)
			}
			points := strings.Fields(strings.ReplaceAll(string(text), " ", "_"))
			if len(points) < 5 {
				t.Fatalf("points: %q", points)
			}
			for i, point := range points {
				if testing.Short() && i%2 == 1 && name != "kept" {
					continue
				}
				t.Run(fmt.Sprintf("%d %s", i+1, point), func(t *testing.T) {
					t.Parallel()
					l := tracked(t)
					killed := run
					killed.KillAt, killed.Trace, killed.Etc = fmt.Sprint(i+1), "", t.TempDir()
					if out, err := l.run(killed); err == nil || !strings.Contains(err.Error(), "killed") {
						t.Fatalf("it was not killed: %v %s", err, out)
					}
					l.must(command{Op: "settle", Etc: killed.Etc})
					if got := l.settings(); got != "120 60" && got != "33 44" {
						t.Errorf("the settings are %s", got)
					}
					l.must(command{Op: "untune", Etc: killed.Etc})
					l.untuned(killed.Etc)
				})
			}
		})
	}
}

// TestUntuneKilledAtEveryPoint: what a revert leaves that is killed, the next one takes back.
func TestUntuneKilledAtEveryPoint(t *testing.T) {
	for i := 1; ; i++ {
		l := tracked(t)
		etc := t.TempDir()
		set := tuned(0, true)
		set.Etc = etc
		l.must(set)
		out, err := l.run(command{Op: "untune", Etc: etc, KillAt: fmt.Sprint(i)})
		if err == nil {
			if i < 5 {
				t.Errorf("it has %d points", i-1)
			}
			l.untuned(etc)
			return
		}
		if !strings.Contains(err.Error(), "killed") {
			t.Fatalf("%v %s", err, out)
		}
		l.must(command{Op: "untune", Etc: etc})
		l.untuned(etc)
	}
}

// What nobody confirms rolls back, with no command left that set it; what somebody
// confirms stays, and is then in the files of boot.
func TestTunedOnTrial(t *testing.T) {
	t.Parallel()
	l := tracked(t)
	etc := t.TempDir()
	set := tuned(time.Second, true)
	set.Etc = etc
	l.must(set)
	for deadline := time.Now().Add(time.Minute); l.settings() != "120 60"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the settings stay %s", l.settings())
		}
	}
	if out, err := l.run(command{Op: "confirm", Etc: etc, Wait: time.Minute}); err == nil {
		t.Errorf("it was confirmed: %s", out)
	}
	l.untuned(etc)

	set = tuned(time.Hour, true)
	set.Etc = etc
	l.must(set)
	if out, err := l.run(set); err == nil || !strings.Contains(err.Error()+out, "wait for confirmation") {
		t.Errorf("over settings that wait: %v %s", err, out)
	}
	if left, _ := filepath.Glob(filepath.Join(etc, "*", "*")); len(left) != 0 {
		t.Errorf("not confirmed, and in %q", left)
	}
	l.must(command{Op: "confirm", Etc: etc})
	l.wantSettings("33 44")
	text, err := os.ReadFile(filepath.Join(etc, sysctlConf))
	if want := bootHead + tunedWait + " = 33\n" + tunedClose + " = 44\n"; err != nil || string(text) != want {
		t.Errorf("%q %v, want %q", text, err, want)
	}
	if text, err := os.ReadFile(filepath.Join(etc, modulesConf)); err != nil || string(text) != bootHead+"nf_conntrack\n" {
		t.Errorf("%q %v", text, err)
	}

	// After a boot what the files have holds, and what was on trial does not.
	k := l.record()
	k.BootID = "another"
	k.Settings[1].Persist, k.Settings[1].Before = false, "60"
	if err := (store{dir: l.dir}).saveTuning(k); err != nil {
		t.Fatal(err)
	}
	l.must(command{Op: "settle", Etc: etc})
	if k := l.record(); len(k.Settings) != 1 || k.Settings[0].Name != tunedWait || k.Settings[0].New != "33" || k.Settings[0].Old != "120" {
		t.Errorf("after a boot: %+v", k.Settings)
	}
}

// A file that stood in place of one of boot comes back, and a value that somebody else has
// set since stays.
func TestUntune(t *testing.T) {
	t.Parallel()
	l := tracked(t)
	etc := t.TempDir()
	own := filepath.Join(etc, sysctlConf)
	if err := os.MkdirAll(filepath.Dir(own), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own, []byte("# mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	set := tuned(0, true)
	set.Etc = etc
	l.must(set)
	set.Tuning.Settings = []Setting{{tunedWait, "35"}} // a second time: the first value is what goes back
	l.must(set)
	l.wantSettings("35 44")
	if err := l.ns.Do(func() error { return sysctl.Write(tunedClose, "50") }); err != nil {
		t.Fatal(err)
	}
	l.must(command{Op: "untune", Etc: etc, Tuning: Tuning{For: "backlog"}})
	l.wantSettings("35 50")
	l.must(command{Op: "untune", Etc: etc, Tuning: Tuning{For: TuneTable}})
	l.wantSettings("120 50")
	if text, err := os.ReadFile(own); err != nil || string(text) != "# mine\n" {
		t.Errorf("%q %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(etc, modulesConf)); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestTuneRefused: nothing is set that is not for it, that a policy sets, or that would have
// connections dropped; where one cannot be set, none is.
func TestTuneRefused(t *testing.T) {
	t.Parallel()
	l := tracked(t)
	if err := l.ns.Do(func() error {
		var flows []conntrack.Flow
		for i := range 1100 {
			flows = append(flows, conntrack.Flow{Protocol: 17, Seconds: 600, Original: conntrack.Tuple{
				Source: netip.MustParseAddr("192.0.2.1"), Destination: netip.MustParseAddr("192.0.2.2"), SourcePort: uint16(1000 + i), DestinationPort: 53,
			}})
		}
		return conntrack.CreateAll(flows)
	}); err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string][]Setting{
		`"kernel.core_pattern" is not a setting that can be tuned`:                 {{"kernel.core_pattern", "1"}},
		`"net.core.netdev_budget/../x" is not a setting that can be tuned`:         {{"net.core.netdev_budget/../x", "300"}},
		`"|x" is not a value for ` + tunedWait:                                     {{tunedWait, "|x"}},
		`"0" is not a value for ` + tunedWait + ": use a number from 1 to 2592000": {{tunedWait, "0"}},
		"the connection table has 1100 entries, and would have room for 1024":      {{tunedWait, "33"}, {tableMost, "1024"}},
		"set sysctl net.netfilter.nf_conntrack_max":                                {{tunedWait, "33"}, {tableMost, "1100"}}, // of another namespace
		"read sysctl net.netfilter.nf_conntrack_tcp_timeout_none":                  {{tunedWait, "33"}, {"net.netfilter.nf_conntrack_tcp_timeout_none", "7"}},
		"no setting is given": nil,
	} {
		out, err := l.run(command{Op: "tune", Tuning: Tuning{For: TuneTable, Settings: s}})
		if err == nil || !strings.Contains(err.Error()+out, want) {
			t.Errorf("%v: %v %s", s, err, out)
		}
		l.untuned("")
	}
	l.must(command{Op: "apply", Policy: "timeout77"})
	for _, s := range []Setting{{tunedWait, "33"}, {"net.netfilter.nf_conntrack_generic_timeout", "33"}} {
		out, err := l.run(command{Op: "tune", Tuning: Tuning{For: TuneTable, Settings: []Setting{s}}})
		if err == nil || !strings.Contains(err.Error()+out, "timeout77.yaml:3: the policy in force sets net.netfilter.nf_conntrack_generic_timeout itself") {
			t.Errorf("%v: %v %s", s, err, out)
		}
	}
	l.untuned("")
}

// TestTunedUnderPolicy: a policy that comes to set what is on trial has the say; the value from
// before both comes back when the policy goes.
func TestTunedUnderPolicy(t *testing.T) {
	t.Parallel()
	const name = "net.netfilter.nf_conntrack_generic_timeout"
	for _, back := range []command{{Op: "untune"}, {Op: "untry"}} {
		l := tracked(t)
		is := func(want string) {
			t.Helper()
			if err := l.ns.Do(func() error {
				have, err := sysctl.Read(name)
				if have != want {
					t.Errorf("%s: it is %s, want %s", back.Op, have, want)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		is("600")
		l.must(command{Op: "tune", Tuning: Tuning{For: TuneTable, Confirm: time.Hour, Settings: []Setting{{name, "55"}}}})
		l.must(command{Op: "apply", Policy: "timeout77"})
		is("77")
		l.must(back)
		is("77")
		l.must(command{Op: "remove"})
		is("600")
	}
}

// A record of settings that is damaged keeps no policy from being confirmed, and nothing is set
// beside it.
func TestDamagedTuned(t *testing.T) {
	t.Parallel()
	l := tracked(t)
	l.must(command{Op: "apply", Policy: "a"})
	l.must(command{Op: "apply", Policy: "b", Confirm: time.Hour})
	if err := os.WriteFile(filepath.Join(l.dir, tunedFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.must(command{Op: "confirm"})
	if s := l.status(); s.Boot != 2 {
		t.Errorf("generation %d boots", s.Boot)
	}
	for _, c := range []command{tuned(0, false), {Op: "untune"}} {
		if out, err := l.run(c); err == nil || !strings.Contains(err.Error()+out, "tuned.json is damaged") {
			t.Errorf("%s: %v %s", c.Op, err, out)
		}
	}
	l.wantSettings("120 60")
}

// FuzzTuned: a record that says anything is an error or a record, and never a crash.
func FuzzTuned(f *testing.F) {
	whole, err := json.Marshal(&tuning{Format: format, BootID: "x", Tuned: Tuned{Settings: []TunedSetting{{Name: tunedWait, Old: "1", New: "2", Before: "1"}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"format":1,"settings":null,"replaced":{"a":null}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		st := store{dir: t.TempDir()}
		if err := os.WriteFile(filepath.Join(st.dir, tunedFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if k, err := st.tuning(); err == nil {
			k.bootFiles()
		}
	})
}
