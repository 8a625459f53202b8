package nftables

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
	"sluice/internal/system/kernel/nfset"
)

// readContents reads what the wanted sets hold. Several are read at a time: the kernel takes longer for the second half
// of a large one than for the first.
func (s *State) readContents(ctx context.Context, want func(*Set) bool) error {
	var wanted []*Set
	for _, k := range s.Tree.Sets {
		if want(k) {
			wanted = append(wanted, k)
		}
	}
	workers := min(len(wanted), runtime.GOMAXPROCS(0), maxReaders)
	work := make(chan *Set, len(wanted))
	for _, k := range wanted {
		work <- k
	}
	makes := s.Tree.makes()
	close(work)
	errs := make([]error, workers)
	var running sync.WaitGroup
	for i := range workers {
		// The socket stays in the namespace of this thread, wherever it is used.
		conn, err := nfset.Open()
		if err != nil {
			errs[i] = err
			break
		}
		running.Go(func() {
			for k := range work {
				if err := k.readElements(ctx, conn, s.Tree.Table, makes[k.Name]); err != nil {
					errs[i] = err
					break
				}
			}
			errs[i] = errors.Join(errs[i], conn.Close())
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// maxReaders bounds how many sets are read at a time.
const maxReaders = 4

// readElements reads one set; made is what the rules put into it.
func (s *Set) readElements(ctx context.Context, conn *nfset.Conn, table string, made []making) error {
	if s.Others {
		return nil
	}
	if s.Life == program.Dynamic && !s.byCommand() {
		return s.readFilled(ctx, conn, table, made)
	}
	plain := len(s.Types) == 1 && !s.Verdicts
	if plain {
		p, err := keyPartOf(s.Types[0])
		plain = err == nil && p.kind == address
	}
	var ranges []addrset.Range
	begin := func() {
		ranges = ranges[:0]
		s.Elements = Elements{}
	}
	err := conn.Dump(ctx, s.inKernel(table), begin, func(e nfset.Element) error {
		s.Asks = s.Asks || len(e.Does) > 0
		if plain && !e.CatchAll {
			r, ok := e.Range()
			if !ok {
				return errKeySize
			}
			if s.Expires && e.Timeout > 0 {
				s.Elements.Ends = append(s.Elements.Ends, addrset.Ending{Range: r, Until: time.Now().Add(e.Expires)})
				return nil
			}
			ranges = append(ranges, r)
			s.count(e, func() string { return r.String() })
			return nil
		}
		text := "*"
		if !e.CatchAll {
			var err error
			if text, err = s.tuple(e.Key, e.End); err != nil {
				return fmt.Errorf("set %s: %w", s.Name, err)
			}
		}
		s.Elements.Tuples = append(s.Elements.Tuples, text)
		if s.Verdicts {
			s.Elements.Verdicts = append(s.Elements.Verdicts, verdictText(e.Verdict))
		}
		s.count(e, func() string { return text })
		return nil
	})
	// Nobody edits a static set that is of use, so it does not matter that others
	// change the ruleset all the time.
	if err != nil && (s.Life != program.Static || !errors.Is(err, nfset.ErrUnfinished)) {
		return err
	}
	s.Elements.sortTuples()
	sorting.By(s.Elements.Ends, func(a, b addrset.Ending) int { return a.Range.From.Compare(b.Range.From) })
	sorting.By(ranges, func(a, b addrset.Range) int { return a.From.Compare(b.From) })
	if merged := addrset.Of(ranges...); !s.Counted && (!s.Interval || merged.Len4()+merged.Len6() == len(ranges)) {
		s.Elements.Addresses = merged
		return nil
	}
	// How the kernel's elements are cut is needed to count and to delete them.
	s.Elements.Ranges = ranges
	return nil
}

func (s *Set) count(e nfset.Element, element func() string) {
	if !s.Counted || !e.Counted {
		return
	}
	if s.Elements.Counts == nil {
		s.Elements.Counts = map[string]backend.Count{}
	}
	text := element()
	s.Elements.Counts[text] = backend.Count{Packets: e.Packets, Bytes: e.Bytes}
	if e.Comment != "" {
		if s.Elements.Counters == nil {
			s.Elements.Counters = map[string]string{}
		}
		s.Elements.Counters[text] = e.Comment
	}
}
