package stress

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/prometheus/procfs"
)

// held is what a process of the agent holds.
func (d *day) held() (footprint, error) {
	p, err := procfs.NewProc(d.agent.Process.Pid)
	if err != nil {
		return nil, err
	}
	s, err := p.NewStatus()
	if err != nil {
		return nil, err
	}
	stat, err := p.Stat()
	if err != nil {
		return nil, err
	}
	open, err := p.FileDescriptorsLen()
	if err != nil {
		return nil, err
	}
	live, err := d.liveMB()
	return footprint{agentMemory: int64(s.RssAnon), agentLive: live, agentThreads: int64(stat.NumThreads), agentFiles: int64(open)}, err
}

// forced is a line of the agent's Go about a collection that it asked for
// (runtime/extern.go): "4->5->3 MB" is its heap before, behind, and what of it is live.
var forced = regexp.MustCompile(`(?m)^gc \d+ .* \d+->\d+->(\d+) MB, .*\(forced\)$`)

// liveMB is what was live when the agent gave memory back the last time.
func (d *day) liveMB() (int64, error) {
	log, err := os.ReadFile(filepath.Join(d.dir, "log"))
	if err != nil {
		return 0, err
	}
	lines := forced.FindAllSubmatch(log, -1)
	if len(lines) == 0 {
		return 0, errors.New("the agent gave no memory back")
	}
	return strconv.ParseInt(string(lines[len(lines)-1][1]), 10, 64)
}
