package hostwatch

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"sluice/internal/system/kernel/conntrack"
	"sluice/internal/system/kernel/netns"
	"sluice/internal/system/kernel/sysctl"
	"sluice/internal/system/kernel/wire"
)

// space reads one namespace.
type space struct {
	Namespace
	inside *netns.Namespace
	table  *conntrack.Statistics
	begun  *conntrack.Begun // nil: not counted
	last   spaceSample      // stands for what cannot be read any more
}

type spaceSample struct {
	tracked      bool // there is a connection table
	entries, max uint64
	begun        uint64 // connections
	table        map[string]uint32
	ip           map[string]uint64 // by wire.Counters
}

func open(n Namespace) (s *space, err error) {
	s = &space{Namespace: n}
	if n.Path == "" {
		s.inside, err = netns.Here()
	} else {
		s.inside, err = netns.Open(n.Path)
	}
	if err != nil {
		return nil, err
	}
	err = s.inside.Do(func() error {
		s.table, err = conntrack.OpenStatistics()
		return err
	})
	if err != nil {
		_ = s.inside.Close()
		return nil, fmt.Errorf("watch %s: %w", cmp.Or(n.Path, "the network namespace"), err)
	}
	return s, nil
}

func (s *space) countBegun(warn func(string, ...any)) {
	err := s.inside.Do(func() (err error) {
		s.begun, err = conntrack.CountBegun()
		return err
	})
	if err != nil {
		s.begun = nil
		warn("connections that begin%s are not shown: %v", s.where(), err)
	}
}

func (s *space) close() {
	if s.begun != nil {
		_ = s.begun.Close()
	}
	_ = s.table.Close()
	_ = s.inside.Close()
}

// sample reads all of a namespace; what fails keeps its last value.
func (s *space) sample(warn func(string, ...any)) spaceSample {
	now := s.last
	err := s.inside.Do(func() error {
		if ip, err := wire.Counters(); err != nil {
			warn("what TCP counts%s is not shown: %v", s.where(), err)
		} else {
			now.ip = ip
		}
		return s.sampleTable(&now)
	})
	if err != nil {
		warn("the connection table%s is not shown: %v", s.where(), err)
	}
	s.last = now
	return now
}

func (s *space) sampleTable(now *spaceSample) error {
	text, err := sysctl.Read("net.netfilter.nf_conntrack_max")
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing is tracked yet
	}
	if err != nil {
		return err
	}
	most, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return err
	}
	entries, err := conntrack.Count()
	if err != nil {
		return err
	}
	now.entries, now.max, now.tracked = entries, most, true
	if s.begun != nil {
		begun, err := s.begun.Read()
		if err != nil {
			return err
		}
		now.begun = begun
	}
	table, err := s.table.Read()
	if err == nil {
		now.table = table // without it the counters would seem to start again
	}
	return err
}

// where names the namespace in a sentence.
func (s *space) where() string {
	if s.Name == "" {
		return ""
	}
	return " of " + s.Name
}
