package apply

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/internal/program"
	"sluice/internal/system/kernel/conntrack"
	"sluice/internal/system/kernel/sysctl"
)

// Tuning is settings of the kernel that a command sets beside any policy. What they were is
// on disk before the first of them is set, so that it comes back whatever happens to the
// process.
type Tuning struct {
	For      string        `json:"for"` // what for: TuneTable, or the id of what it fixes
	Settings []Setting     `json:"settings,omitempty"`
	Confirm  time.Duration `json:"confirm-ns,omitempty"` // 0: they are kept at once
	Persist  bool          `json:"persist,omitempty"`    // at boot too, once they are kept
	Force    bool          `json:"force,omitempty"`      // also where Memory is more than half of what is free
	Memory   uint64        `json:"-"`                    // bytes that they may come to take
}

// TuneTable is what a Tuning of the connection table is for.
const TuneTable = "conntrack"

// TunedSetting is one that a command has set.
type TunedSetting struct {
	Name string `json:"name"`
	Old  string `json:"old"` // what it was before any command set it
	New  string `json:"new"`
	For  string `json:"for"` // what for, the first time
	// Persist says that the next boots set it too.
	Persist bool `json:"persist,omitempty"`
	// Before is what it goes back to while it waits for a confirmation, or was not set to the
	// end; "" of one that is kept.
	Before string    `json:"before,omitempty"`
	Since  time.Time `json:"since"`
	By     Author    `json:"by"`
}

// Tuned is what commands have set and what came of it. The zero value is nothing.
type Tuned struct {
	Settings []TunedSetting `json:"settings"`
	Files    []string       `json:"files,omitempty"`   // that have the next boots set them
	Pending  *Pending       `json:"pending,omitempty"` // the newest wait for a confirmation
}

// TableSince is when the room of the connection table was set last, the zero value where no
// command did.
func (t *Tuned) TableSince() (since time.Time) {
	for _, s := range t.Settings {
		if s.Name == tableMost {
			since = s.Since
		}
	}
	return since
}

// SetByPolicyError says that the policy in force sets something itself.
type SetByPolicyError struct {
	Name   string
	Origin program.Origin
}

func (e *SetByPolicyError) Error() string {
	return fmt.Sprintf("%s:%d: the policy in force sets %s itself", e.Origin.File, e.Origin.Line, e.Name)
}

// ShrinkError says that a table would have less room than it has entries.
type ShrinkError struct{ Entries, Most uint64 }

func (e *ShrinkError) Error() string {
	return fmt.Sprintf("the connection table has %d entries, and would have room for %d: new connections would be dropped\n  nothing changed", e.Entries, e.Most)
}

// names are the beginnings of those that no policy may set beside it.
func (t Tuning) names() (out []string) {
	if t.For == TuneTable {
		out = append(out, TableNames)
	}
	for _, c := range t.Settings {
		out = append(out, c.Name)
	}
	return out
}

const (
	// TableNames begins the names of all settings of the connection table.
	TableNames = "net.netfilter.nf_conntrack_"

	tableMost    = "net.netfilter.nf_conntrack_max"
	tableBuckets = "net.netfilter.nf_conntrack_buckets"
)

// tunable are the settings that a Tuning may name, by their beginning, and the least and the
// most that they may be: who may change the firewall sets no other of the machine.
var tunable = []struct {
	name        string
	least, most uint64
}{
	{tableMost, 1024, 1 << 28},
	{tableBuckets, 1024, 1 << 28},
	{"net.netfilter.nf_conntrack_tcp_timeout_", 1, 30 * 86400},
	{"net.netfilter.nf_conntrack_udp_timeout", 1, 30 * 86400},
	{"net.netfilter.nf_conntrack_generic_timeout", 1, 30 * 86400},
	{"net.core.netdev_max_backlog", 300, 1 << 20},
	{"net.core.netdev_budget", 100, 1 << 16},
	{"net.ipv4.neigh.default.gc_thresh", 128, 1 << 24},
	{"net.ipv6.neigh.default.gc_thresh", 128, 1 << 24},
}

// fit says what of a setting may not be.
func (s Setting) fit() error {
	for _, t := range tunable {
		if !strings.HasPrefix(s.Name, t.name) || strings.ContainsAny(s.Name, "/ \n") {
			continue
		}
		if n, err := strconv.ParseUint(s.Value, 10, 64); err != nil || n < t.least || n > t.most {
			return fmt.Errorf("%q is not a value for %s: use a number from %d to %d", s.Value, s.Name, t.least, t.most)
		}
		return nil
	}
	return fmt.Errorf("%q is not a setting that can be tuned", s.Name)
}

// Tuning says what commands have set here.
func (h *Host) Tuning() (*Tuned, error) {
	k, err := store{dir: h.Dir}.tuning()
	if err != nil {
		return nil, err
	}
	return &k.Tuned, nil
}

// Policed is the error of a setting that the policy in force sets itself; nil where it sets
// none that begins with one of the names.
func (h *Host) Policed(names ...string) error {
	st, cur, err := h.peek()
	if err != nil || cur.Running == 0 {
		return err
	}
	return st.policed(cur.Running, names...)
}

func (s store) policed(running int, names ...string) error {
	if running == 0 {
		return nil
	}
	g, err := s.generation(running)
	if err != nil {
		return err
	}
	if len(g.Sysctls) == 0 {
		return nil
	}
	p, err := s.program(g)
	if err != nil {
		return err
	}
	for _, w := range p.Sysctls {
		if slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(w.Name, n) }) {
			return &SetByPolicyError{w.Name, w.Origin}
		}
	}
	return nil
}

// Tune sets settings and remembers what they were. Where one cannot be set, none is.
func (h *Host) Tune(ctx context.Context, in Tuning) (*Tuned, error) {
	if in.For == "" || len(in.Settings) == 0 && !in.Persist {
		return nil, errors.New("no setting is given")
	}
	for _, c := range in.Settings {
		if err := c.fit(); err != nil {
			return nil, err
		}
	}
	if in.Persist && h.etc == "" && !inFirstNamespace() {
		return nil, errors.New("settings at boot are for the first network namespace only")
	}
	s, _, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	k, err := s.tuning()
	if err != nil {
		return nil, err
	}
	if k.Pending != nil {
		return nil, remedied(ConfirmFirst, errors.New("earlier tuned settings wait for confirmation"))
	}
	if err := s.policed(s.cur.Running, in.names()...); err != nil {
		return nil, err
	}
	if err := refuseTuning(in); err != nil {
		return nil, err
	}
	if err := s.enter(k, in); err != nil {
		return nil, s.nothingDone(err)
	}
	s.point("recorded")
	if err := s.setTuned(k, in); err != nil {
		s.point("going back")
		return nil, errors.Join(err, s.untry(k))
	}
	if k.Pending == nil {
		err = s.keepTuned(k)
	}
	return &k.Tuned, err
}

// refuseTuning refuses a table that has less room than entries, and one that takes too much.
func refuseTuning(in Tuning) error {
	if free := FreeMemory(); !in.Force && free > 0 && in.Memory > free/budget {
		return &TuningMemoryError{in.Memory, free}
	}
	for _, c := range in.Settings {
		if err := refuseShrink(c); c.Name == tableMost && err != nil {
			return err
		}
	}
	return nil
}

// TuningMemoryError says that a table may come to take more than the kernel should give.
type TuningMemoryError struct{ Most, Free uint64 }

func (e *TuningMemoryError) Error() string {
	return fmt.Sprintf("a table of that size may take %s of kernel memory, of %s that are free\n  nothing changed", Bytes(e.Most), Bytes(e.Free))
}

func refuseShrink(c Setting) error {
	most, err := strconv.ParseUint(c.Value, 10, 64)
	if err != nil {
		return err
	}
	entries, err := conntrack.Count()
	if err == nil && most > 0 && most < entries {
		err = &ShrinkError{entries, most}
	}
	return err
}

// enter records what the settings are, before any is set.
func (s *session) enter(k *tuning, in Tuning) error {
	now := s.now()
	if k.BootID, k.Unset = bootID(), true; in.Persist {
		k.Persist = in.For
	}
	for _, c := range in.Settings {
		before, err := sysctl.Read(c.Name)
		if err != nil {
			return err
		}
		if before == c.Value {
			continue
		}
		i := slices.IndexFunc(k.Settings, func(t TunedSetting) bool { return t.Name == c.Name })
		if i < 0 {
			i = len(k.Settings)
			k.Settings = append(k.Settings, TunedSetting{Name: c.Name, Old: before, For: in.For})
		}
		t := &k.Settings[i]
		if before != t.New && t.New != "" {
			t.Old = before // somebody else has set it meanwhile
		}
		t.New, t.Before, t.Since, t.By = c.Value, before, now, s.By
	}
	if in.Confirm > 0 && slices.ContainsFunc(k.Settings, onTrial) {
		var token [8]byte
		_, _ = rand.Read(token[:]) // never fails, says its documentation
		k.Pending = &Pending{Token: hex.EncodeToString(token[:]), BootID: k.BootID}
		k.Pending.start(in.Confirm)
	}
	return s.saveTuning(k)
}

// onTrial says that a setting is not kept yet.
func onTrial(t TunedSetting) bool { return t.Before != "" }

// setTuned arms the watcher and sets what was entered, in the order that was asked for.
func (s *session) setTuned(k *tuning, in Tuning) error {
	if k.Pending != nil {
		if err := s.arm(k.Pending); err != nil {
			return fmt.Errorf("start the watcher that restores the settings unless they are confirmed: %w", err)
		}
		if err := s.saveTuning(k); err != nil {
			return err
		}
		s.point("armed")
	}
	for _, c := range in.Settings {
		i := slices.IndexFunc(k.Settings, func(t TunedSetting) bool { return t.Name == c.Name && t.Before != "" })
		if i < 0 {
			continue
		}
		if err := sysctl.Write(c.Name, c.Value); err != nil {
			return s.sysctlError(c.Name, err)
		}
		have, err := sysctl.Read(c.Name)
		if err != nil {
			return err
		}
		if have != c.Value && c.Name != tableBuckets { // of which the kernel makes whole pages
			return fmt.Errorf("sysctl %s is %s after %s was written", c.Name, have, c.Value)
		}
		k.Settings[i].New = have
		s.point("sysctl " + c.Name)
	}
	k.Unset = false
	err := s.saveTuning(k)
	s.point("set")
	return err
}

// keepTuned keeps what was tried, and writes the files of boot where that was asked for.
func (s *session) keepTuned(k *tuning) error {
	pending := k.Pending
	for i := range k.Settings {
		t := &k.Settings[i]
		t.Before = ""
		t.Persist = t.Persist || k.Persist != "" && t.For == k.Persist
	}
	k.Pending = nil
	if err := s.saveTuning(k); err != nil {
		return err
	}
	disarm(pending)
	s.point("kept")
	err := s.persist(k)
	if err != nil {
		err = fmt.Errorf("the settings are kept, but not for the next boot: %w", err)
	}
	k.Persist = ""
	return errors.Join(err, s.saveTuning(k))
}
