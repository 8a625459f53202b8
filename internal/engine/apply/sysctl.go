package apply

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sluice/internal/program"
	"sluice/internal/system/kernel/sysctl"
)

// Settings are the sysctls that a program wants in this namespace; what belongs
// to the whole machine and may not be set from here is named.
func Settings(p *program.Program) (settings []Setting, notes []string) {
	for _, w := range p.Sysctls {
		if w.HostWide && !ownsMachine(w.Name) {
			notes = append(notes, NoteText(program.Note{
				Origin: w.Origin,
				Text:   fmt.Sprintf("%s = %s is left out: it belongs to the whole machine and cannot be set in a network namespace", w.Name, w.Value),
			}))
			continue
		}
		settings = append(settings, Setting{w.Name, w.Value})
	}
	return settings, notes
}

// ownsMachine says that a setting of the whole machine can be set from here:
// the kernel shows such a file without its write bit in every namespace but the
// first. Without the file, as long as nothing is tracked, the namespace of
// process 1 is the best guess.
func ownsMachine(name string) bool {
	info, err := os.Stat(filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/")))
	if err == nil {
		return info.Mode()&0o200 != 0
	}
	return inFirstNamespace()
}

func inFirstNamespace() bool {
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return false
	}
	first, err := os.Readlink("/proc/1/ns/net")
	return err == nil && here == first
}

// Originals are the sysctls as they were before Sluice changed them, in this
// boot of the machine; what is computed from the host goes by them.
func (h *Host) Originals() map[string]string {
	_, cur, err := h.peek()
	if err != nil || cur.BootID != bootID() {
		return nil
	}
	return cur.Originals
}

// desired is what a generation wants; empty for none.
func desired(g *Generation) map[string]string {
	want := map[string]string{}
	if g != nil {
		for _, c := range g.Sysctls {
			want[c.Name] = c.New
		}
	}
	return want
}

// setSysctls brings the sysctls that Sluice has ever changed to what is wanted,
// the others of them back to what they were. The old value is on disk before a
// new one is in the kernel, so a killed process loses none.
//
// A value that the kernel does not have yet (connection tracking is a module
// that the rules load) is skipped when early, an error later.
func (s *session) setSysctls(want map[string]string, early bool) error {
	recorded := false
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if _, known := s.cur.Originals[name]; known {
			continue
		}
		old, err := sysctl.Read(name)
		if isMissing(err) && early {
			continue
		}
		if err != nil {
			return err
		}
		if s.cur.Originals == nil {
			s.cur.Originals = map[string]string{}
		}
		s.cur.Originals[name] = old
		recorded = true
	}
	if recorded {
		if err := s.saveCurrent(s.cur); err != nil {
			return err
		}
		s.point("sysctls recorded")
	}
	for _, name := range slices.Sorted(maps.Keys(s.cur.Originals)) {
		value, wanted := want[name]
		if !wanted {
			value = s.cur.Originals[name]
		}
		have, err := sysctl.Read(name)
		if isMissing(err) && (early || !wanted) {
			continue
		}
		if err == nil && have == value {
			continue
		}
		if err := sysctl.Write(name, value); err != nil {
			return s.sysctlError(name, err)
		}
		s.point("sysctl " + name)
	}
	return nil
}

func (s *session) sysctlError(name string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return &RemedyError{Err: err, Remedy: LeaveSysctl, Name: name}
	}
	return err
}

// forgetSysctls drops the record once everything is back as it was.
func (s *session) forgetSysctls(want map[string]string) {
	for name := range s.cur.Originals {
		if _, wanted := want[name]; !wanted {
			delete(s.cur.Originals, name)
		}
	}
}
