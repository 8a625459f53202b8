package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// settle finishes or forgets the change that a killed command left, and does
// what a killed watcher did not.
func (s *session) settle(ctx context.Context) error {
	defer s.soften()()
	s.newBoot()
	if err := s.settleChange(ctx); err != nil {
		s.tellRecovered()
		return err
	}
	if err := s.adopt(ctx); err != nil {
		return err
	}
	s.tellRecovered()
	s.settleKept(ctx)
	s.settlePending(ctx)
	s.settleTuned()
	s.sweepKept(ctx)
	s.settleBanning(ctx)
	return nil
}

func (s *session) settleChange(ctx context.Context) error {
	j, err := s.journal()
	var newer *NewerError
	if errors.As(err, &newer) {
		return remedied(SeeKernel, err)
	}
	if err != nil {
		// What runs is known by the kernel's mark; what was filled in is swept later.
		s.note("%v; it is kept as %s", err, journalFile+damagedSuffix)
		path := filepath.Join(s.dir, journalFile)
		if err := os.Rename(path, path+damagedSuffix); err != nil {
			s.note("%v", err)
		}
	}
	if j == nil {
		s.sweepTemporary()
		return nil
	}
	s.sweepTemporary()
	if j.BootID != bootID() {
		// Rules and sysctls went with the reboot.
		return s.drop(j)
	}
	mark, err := s.mark(ctx, j.To.Mark)
	if err != nil {
		return err
	}
	s.note("%s was interrupted at %q: the kernel holds %s", describe(j), j.Step, settledName(j, mark))
	if j.Back || mark != j.To.Mark {
		if err := s.forget(ctx, j); err != nil {
			return remedied(SeeKernel, fmt.Errorf("clean up after an interrupted change: %w", err))
		}
		return nil
	}
	if j.Pending != nil && j.Pending.Left() == 0 {
		// Its time is over: what is not done yet of it need not be.
		if err := s.finish(j); err != nil {
			s.note("%v", err)
			s.cur.Running, s.cur.Pending = j.To.Generation, j.Pending
		}
		return nil
	}
	to, err := s.toLoad(ctx, j.To.Generation)
	if err == nil {
		j.Fitted = to.fitted
		to.artifact = s.beside(to.artifact, j.Pending)
		err = s.load(ctx, j, to)
	}
	if err != nil {
		return remedied(SeeKernel, fmt.Errorf("finish an interrupted change: %w", err))
	}
	s.forgetBanned(to)
	return s.finish(j)
}

func describe(j *journal) string {
	if j.To.Generation == 0 {
		return "removing the policy"
	}
	return fmt.Sprintf("the change to generation %d", j.To.Generation)
}

func settledName(j *journal, mark string) string {
	if mark == j.To.Mark {
		return "the new policy, " + nameOf(j.To.Generation, mark)
	}
	return "the old policy, " + nameOf(j.From.Generation, mark)
}
