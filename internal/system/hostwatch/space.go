package hostwatch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"sluice/internal/system/kernel/conntrack"
	"sluice/internal/system/kernel/netns"
	"sluice/internal/system/kernel/statistics"
)

// space reads one namespace. What it opens inside of it is read from any thread.
type space struct {
	Namespace
	inside       *netns.Namespace
	entries, max *os.File // nil while the kernel tracks no connections
	table        *conntrack.Statistics
	tcp          *statistics.TCP
	last         spaceSample // stands for what cannot be read any more
}

type spaceSample struct {
	tracked      bool // there is a connection table
	entries, max uint64
	table        map[string]uint32
	tcp          map[string]uint64
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
		s.tcp, err = statistics.OpenTCP()
		if err != nil {
			return err
		}
		s.table, err = conntrack.OpenStatistics()
		return err
	})
	if err != nil {
		s.close()
		return nil, fmt.Errorf("watch network namespace %s: %w", n.Path, err)
	}
	return s, nil
}

func (s *space) close() {
	if s.tcp != nil {
		s.tcp.Close()
	}
	if s.table != nil {
		_ = s.table.Close()
	}
	for _, f := range []*os.File{s.entries, s.max} {
		if f != nil {
			_ = f.Close()
		}
	}
	_ = s.inside.Close()
}

const settings = "/proc/sys/net/netfilter/nf_conntrack_"

// openTable opens the size of the table, which is there from the moment on when the
// kernel begins to track.
func (s *space) openTable() error {
	return s.inside.Do(func() error {
		entries, err := os.Open(settings + "count")
		if err != nil {
			return err
		}
		s.max, err = os.Open(settings + "max")
		if err != nil {
			return errors.Join(err, entries.Close())
		}
		s.entries = entries
		return nil
	})
}

// sample reads all of a namespace; what fails keeps its last value.
func (s *space) sample(warn func(string, ...any)) spaceSample {
	now := s.last
	if tcp, err := s.tcp.Read(); err != nil {
		warn("what TCP counts%s is not shown: %v", s.where(), err)
	} else {
		now.tcp = tcp
	}
	if err := s.sampleTable(&now); err != nil {
		warn("the connection table%s is not shown: %v", s.where(), err)
	}
	s.last = now
	return now
}

func (s *space) sampleTable(now *spaceSample) error {
	if s.entries == nil {
		if err := s.openTable(); errors.Is(err, fs.ErrNotExist) {
			return nil // nothing is tracked yet
		} else if err != nil {
			return err
		}
	}
	entries, err := number(s.entries)
	if err != nil {
		return err
	}
	most, err := number(s.max)
	if err != nil {
		return err
	}
	now.entries, now.max, now.tracked = entries, most, true
	table, err := s.table.Read()
	if err == nil {
		now.table = table // without it the counters would seem to begin anew
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

// number reads a file that is one.
func number(f *os.File) (uint64, error) {
	var text [24]byte
	n, err := f.ReadAt(text[:], 0)
	if n == 0 {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text[:n])), 10, 64)
}
