package stories

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/product"
	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/sysctl"
)

// Stage is what a story plays on.
type Stage struct {
	// Net is the laboratory; it is closed after the story. Set-up steps that fail end
	// the story with their error.
	Net *testnet.Net
	// Dir is a folder of the story's own, removed after it.
	Dir string
	Options

	report   *figures.Report
	sections []*figures.Section
	found    *figures.Section
	honest   []string
	begun    time.Time
	hold     *sysctl.Hold
	servers  []server
}

// Say tells who watches what is happening.
func (s *Stage) Say(format string, args ...any) {
	if s.Options.Say != nil {
		s.Options.Say(fmt.Sprintf(format, args...))
	}
}

// Section begins a section of the page. Figures and charts are added to what is
// returned until the story ends; text is a paragraph each.
func (s *Stage) Section(name, title string, text ...string) *figures.Section {
	section := &figures.Section{Name: name, Title: title, Text: text}
	s.sections = append(s.sections, section)
	return section
}

// Goal puts a figure beside what was asked of it.
func (s *Stage) Goal(g figures.Goal) { s.report.Goals = append(s.report.Goals, g) }

// Warn says what weakens the figures.
func (s *Stage) Warn(format string, args ...any) {
	s.report.Warnings = append(s.report.Warnings, fmt.Sprintf(format, args...))
}

// Found names the cause, and beside it the evidence: what was read from the
// kernel, a line each. It opens a section of its own where it is called first.
func (s *Stage) Found(cause string, evidence ...string) {
	if s.found == nil {
		s.found = s.Section("cause", "The cause, from what the kernel shows")
	}
	s.found.Text = append(s.found.Text, cause)
	s.Say("cause: %s", cause)
	for _, line := range evidence {
		s.found.Text = append(s.found.Text, "– "+line)
		s.Say("  %s", line)
	}
}

// Honest says where this differs from the way the incident was told; it becomes
// the page's last section.
func (s *Stage) Honest(format string, args ...any) {
	s.honest = append(s.honest, fmt.Sprintf(format, args...))
}

// Answer writes a policy file into the story's folder, shows it on the page, and
// returns its path.
func (s *Stage) Answer(name, title, policy string) (file string, err error) {
	file = filepath.Join(s.Dir, name)
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		return "", err
	}
	text := []string{"The policy, applied with: sluice apply " + name}
	for line := range strings.Lines(strings.TrimRight(policy, "\n")) {
		text = append(text, "    "+strings.TrimRight(line, "\n"))
	}
	s.Section("policy-"+strings.TrimSuffix(name, filepath.Ext(name)), title, text...)
	return file, nil
}

// Apply applies a policy file in a namespace with the real "sluice apply", which
// reads the kernel back and proves what it holds. It returns what was printed.
func (s *Stage) Apply(ctx context.Context, host *testnet.Namespace, file string, args ...string) (string, error) {
	out, status, err := s.Sluice(ctx, host, append([]string{"apply", file, "--no-confirm"}, args...)...)
	if err == nil && status != 0 {
		err = fmt.Errorf("sluice apply %s: exit status %d:\n%s", filepath.Base(file), status, out)
	}
	return out, err
}

// Sluice runs a command of sluice for a namespace, nil being the one that the
// story was started in. Each namespace has a state of its own. It returns both
// streams together and the exit status.
func (s *Stage) Sluice(ctx context.Context, host *testnet.Namespace, args ...string) (output string, status int, err error) {
	return product.Sluice{Binary: s.Binary, State: s.StateDir(host), Dir: s.Dir}.Run(ctx, host, nil, args...)
}

// StateDir is the state directory that Sluice works with for a namespace.
func (s *Stage) StateDir(host *testnet.Namespace) string {
	if host == nil {
		return filepath.Join(s.Dir, "state-machine")
	}
	return filepath.Join(s.Dir, "state")
}
