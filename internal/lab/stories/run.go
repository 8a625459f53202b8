package stories

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/kernels"
	"sluice/internal/lab/testnet"
	"sluice/internal/system/host"
)

// Options say how a story is played.
type Options struct {
	Binary    string // the program of sluice
	Lab       string // of sluice-lab, which asks from inside namespaces (AskChild)
	Version   string // of sluice, for the report
	Command   string // as it can be given again
	Countries string // state directory with country data; see CountryState
	Seed      uint64
	Short     bool // asks for the least that still shows it: what tests run
	// HostSysctl allows to change settings of the whole machine while the story
	// plays.
	HostSysctl bool
	// InLab says that the machine is one of the kernel lab, which is gone afterwards.
	InLab bool
	// Say is told what is happening, a line each; nil tells nobody.
	Say func(line string)
}

// ErrMachine is the answer to a story that needs settings of the whole machine
// which nobody has allowed.
var ErrMachine = errors.New("the limit of the connection table (nf_conntrack_max) belongs to the whole machine, and no namespace has its own")

// Run plays a story on this machine. The report is there, with what was measured
// so far, also beside an error, once the story has begun.
func Run(ctx context.Context, story Story, o Options) (*figures.Report, error) {
	if story.Machine && !o.HostSysctl && !o.InLab {
		return nil, ErrMachine
	}
	if o.InLab && !kernels.Inside() {
		return nil, errors.New("this machine is none of the kernel lab, where settings are nobody's\nhint: --kernel 6.12 plays a story there")
	}
	for _, f := range append([]testnet.Feature{testnet.Namespaces, testnet.Nftables}, story.Needs...) {
		if err := f.Ask(); err != nil {
			hint := ""
			if errors.Is(err, fs.ErrPermission) && !strings.Contains(err.Error(), "hint:") {
				hint = "\nhint: run as root, or in an emulated machine, which needs no root: --kernel 6.12"
			}
			return nil, fmt.Errorf("story %d needs %s: %w%s", story.Number, f.Name, err, hint)
		}
	}
	kernels.RemoveLeftovers(folderPrefix)
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", folderPrefix, os.Getpid()))
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	net, err := testnet.Create("story")
	if err != nil {
		return nil, err
	}
	s := &Stage{
		Net: net, Dir: dir, Options: o, begun: time.Now(),
		report: &figures.Report{
			Title:   fmt.Sprintf("Story %d: %s", story.Number, story.Title),
			Command: o.Command, Version: o.Version, When: time.Now(), Machine: host.ThisMachine(), Seed: o.Seed,
		},
	}
	s.Section("incident", "What happened", story.Incident)
	var failure error
	err = net.Try(func() {
		failure = story.Run(ctx, s)
		if ctx.Err() == nil {
			failure = errors.Join(failure, s.serversRun())
		}
	})
	err = errors.Join(err, failure, net.Close(), s.release())
	return s.finish(), err
}

// finish puts the report together.
func (s *Stage) finish() *figures.Report {
	if len(s.honest) > 0 {
		s.Section("honest", "Where this differs from the story", s.honest...)
	}
	for _, section := range s.sections {
		s.report.Sections = append(s.report.Sections, *section)
	}
	s.report.Took = time.Since(s.begun).Seconds()
	return s.report
}

const folderPrefix = "sluice-story-"
