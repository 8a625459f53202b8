package kernelbench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/figures"
	"sluice/internal/system/host"
)

// Options say what to measure.
type Options struct {
	Binary   string // the sluice that is measured
	StateDir string // has the country data
	// Modules is where the kernel's modules are, in a machine that may be changed: one
	// of them is away for a while. "" leaves that section out.
	Modules  string
	Sections []string // names; empty is all
	Alone    bool     // leave out what the examples are measured beside
	Plant    string   // a rule of nft that comes first in Sluice's chains of input and forward; "": none
	Seed     uint64
	Say      func(string, ...any)
}

// What is counted in instructions differs little from round to round.
const (
	rounds  = 5
	packets = 2048 // of a timed injection
)

// bench is one run.
type bench struct {
	Options
	context.Context
	dir    string // policies
	kernel string // the subject of every figure: "6.12"
	unit   string
	report *figures.Report
}

// sections of the report, in the order in which they are measured.
var sections = []struct {
	name string
	run  func(*bench) error
}{
	{"fallback", (*bench).fallback}, // first: no module of flowtables is loaded yet
	{"capabilities", (*bench).capabilities},
	{"lists", (*bench).lists},
	{"forward", (*bench).forward},
	{"kinds", (*bench).kinds},
	{"limits", (*bench).limits},
	{"candidates", (*bench).candidates},
	{"layouts", (*bench).layouts},
	{Examples, (*bench).examples},
}

// Sections are the names of all sections, in the order in which they are measured.
func Sections() []string {
	var names []string
	for _, s := range sections {
		names = append(names, s.name)
	}
	return names
}

// CheckSections refuses names that no section has.
func CheckSections(names []string) error {
	for _, name := range names {
		if !slices.Contains(Sections(), name) && !isExample(name) {
			return fmt.Errorf("no section is called %q\nhint: %s, or %s/NAME", name, strings.Join(Sections(), ", "), Examples)
		}
	}
	return nil
}

func isExample(section string) bool { return strings.HasPrefix(section, Examples+"/") }

func (b *bench) wants(section string) bool {
	return len(b.Sections) == 0 || slices.Contains(b.Sections, section)
}

// Run measures on the kernel that it runs on.
func Run(ctx context.Context, o Options) (*figures.Report, error) {
	dir, err := os.MkdirTemp("", "sluice-kernelbench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := CheckSections(o.Sections); err != nil {
		return nil, err
	}
	release := release()
	b := &bench{
		Options: o, Context: ctx, dir: dir, kernel: Short(release), unit: "ns",
		report: &figures.Report{
			Schema: figures.Schema, Title: "What packets pay on " + release,
			When: time.Now().Truncate(time.Second), Machine: host.ThisMachine(), Seed: o.Seed,
		},
	}
	if b.report.Machine.Counted {
		b.unit = "instructions"
	}
	for _, s := range sections {
		if !b.wants(s.name) && !(s.name == Examples && slices.ContainsFunc(o.Sections, isExample)) {
			continue
		}
		begin := time.Now()
		if err := s.run(b); err != nil {
			return nil, fmt.Errorf("kernel %s: %s: %w", release, s.name, err)
		}
		b.Say("%s: %.1f s", s.name, time.Since(begin).Seconds())
	}
	b.report.Took = time.Since(b.report.When).Seconds()
	return b.report, nil
}

func release() string {
	var u unix.Utsname
	_ = unix.Uname(&u) // it cannot fail
	return unix.ByteSliceToString(u.Release[:])
}

// Short is the version of a release: "6.12" of "6.12.117+deb12-cloud-amd64".
func Short(release string) string {
	f := strings.SplitN(release, ".", 3)
	if len(f) < 3 {
		return release
	}
	return f[0] + "." + f[1]
}

// file writes a file of a policy and returns its path.
func (b *bench) file(name, text string) (string, error) {
	path := filepath.Join(b.dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}
