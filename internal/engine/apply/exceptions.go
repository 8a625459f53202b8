package apply

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Exception is who was let in by command, or put into a living set. A generation has it
// before the rules of its policy, or in the set, and the kernel ends it by itself.
type Exception struct {
	What    string    `json:"what"`              // an address, prefix or range
	Set     string    `json:"set,omitempty"`     // that has it; "": it is let in
	Service string    `json:"service,omitempty"` // as rules write it; "" is every one
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until,omitzero"` // to the second; zero: until it is lifted
	By      Author    `json:"by"`
	OverBan bool      `json:"over-ban,omitempty"` // it holds before bans too
	ID      string    `json:"id,omitempty"`       // of one of the fleet that the host is of; "": a command's
}

// Same says that another exception is for the same address and service, or set, and both are
// by commands, or one of the fleet.
func (e *Exception) Same(o Exception) bool {
	return e.ID == o.ID && e.What == o.What && e.Service == o.Service && e.Set == o.Set
}

// LetIn are those among a list that let somebody in.
func LetIn(list []Exception) []Exception {
	return slices.DeleteFunc(slices.Clone(list), func(e Exception) bool { return e.Set != "" })
}

// Among says of an exception that it is one of a list, of which there may be many thousands.
func Among(list []Exception) func(Exception) bool {
	all := make(map[Exception]bool, len(list))
	for _, e := range list {
		all[e] = true
	}
	return func(e Exception) bool { return all[e] }
}

// InSets are those among a list that are in living sets.
func InSets(list []Exception) []Exception {
	return slices.DeleteFunc(slices.Clone(list), func(e Exception) bool { return e.Set == "" })
}

// Text is who is let in, and to what, or in which set.
func (e *Exception) Text() string {
	if e.Set != "" {
		return e.What + " in set " + e.Set
	}
	return e.What + " to " + e.To()
}

// To is what it is let in to.
func (e *Exception) To() string {
	text := cmp.Or(e.Service, "everything")
	if e.OverBan {
		text += " over bans"
	}
	return text
}

// exceptionsFile holds those of a namespace, whichever generation runs.
const exceptionsFile = "exceptions.json"

type exceptionsOnDisk struct {
	Format     int         `json:"format"`
	Exceptions []Exception `json:"exceptions"`
}

// exceptions are those that are not over.
func (s store) exceptions(now time.Time) ([]Exception, error) {
	var on exceptionsOnDisk
	if err := s.readJSON(exceptionsFile, &on); err != nil && !isLost(err) { // whom a damaged file let in is let in no more
		return nil, err
	}
	return LiveExceptions(on.Exceptions, now), nil
}

// LiveExceptions are those among a list that are not over.
func LiveExceptions(list []Exception, now time.Time) []Exception {
	return slices.DeleteFunc(slices.Clone(list), func(e Exception) bool { return !e.Until.IsZero() && !e.Until.After(now) })
}

// Exceptions are those that hold, in the order in which they came. It takes no lock.
func (h *Host) Exceptions() ([]Exception, error) {
	if err := needRoot(); err != nil {
		return nil, err
	}
	s := store{dir: h.Dir}
	var damaged *DamagedError
	if err := s.readJSON(exceptionsFile, &exceptionsOnDisk{}); errors.As(err, &damaged) {
		h.note("%v: the exceptions by command, and what commands added to sets, are lost and no longer in force", damaged)
	}
	return s.exceptions(h.now())
}

// Excepting is a change of the exceptions, which comes with the rules that have it.
type Excepting struct{ From, To []Exception }

// except writes a change down, and gives what takes it back. Who reads it after a crash
// between this and the rules finds that those lack it.
func (s *session) except(in *Excepting) (back func(), err error) {
	if err := s.refuseOthers(in.From); err != nil {
		return nil, err
	}
	now, err := s.exceptions(s.now())
	if err != nil {
		return nil, err
	}
	if err := s.saveExceptions(in.To); err != nil {
		return nil, s.nothingDone(err)
	}
	return func() {
		if err := s.saveExceptions(now); err != nil {
			s.note("the exceptions are still recorded: %v", err)
		}
	}, nil
}

// refuseOthers refuses rules that were made while other exceptions held.
func (s *session) refuseOthers(hold []Exception) error {
	now, err := s.exceptions(s.now())
	if err == nil && !slices.Equal(now, LiveExceptions(hold, s.now())) {
		err = remedied(DoAgain, errors.New("somebody else changed the exceptions meanwhile\n  nothing changed"))
	}
	return err
}

func (s *session) saveExceptions(list []Exception) error {
	return s.writeJSON(exceptionsFile, exceptionsOnDisk{format, list})
}

// refuseLifted refuses a trial of a generation that lets in whom commands have not let in
// any more: what holds is applied once it is kept.
func (s *session) refuseLifted(g *Generation, o Options) error {
	hold, err := s.exceptions(s.now())
	if err != nil || o.Confirm == 0 {
		return err
	}
	holds := Among(hold)
	for _, e := range LiveExceptions(g.Exceptions, s.now()) {
		switch {
		case holds(e):
		case e.Set != "":
			return remedied(GoBackUnconfirmed, fmt.Errorf("generation %d has %s in set %s, from which a command has since removed it, and would as long as it is on trial\n  nothing changed", g.Number, e.What, e.Set))
		default:
			return remedied(GoBackUnconfirmed, fmt.Errorf("generation %d allows %s by an exception that was lifted since, and would as long as it is on trial\n  nothing changed", g.Number, e.What))
		}
	}
	return nil
}

// ExceptionDrift is one that the rules lack and that holds, or that they have and that does
// not.
type ExceptionDrift struct {
	Exception
	Lifted bool `json:"lifted,omitempty"` // the rules have it
}

func (d ExceptionDrift) String() string {
	switch {
	case d.Set != "" && d.Lifted:
		return d.Text() + " by the rules, but no longer by command"
	case d.Set != "":
		return d.Text() + " by command, but not by the rules"
	case d.Lifted:
		return d.Text() + " is still allowed by the rules, but no longer by command"
	}
	return d.Text() + " is allowed by command, but not by the rules"
}

// ExceptionDrift is how the exceptions of the generation that runs differ from those that
// hold, except for those that its policy leaves out. A trial runs as it is. It takes no lock.
func (h *Host) ExceptionDrift() ([]ExceptionDrift, error) {
	st, cur, err := h.peek()
	if err != nil || cur.Running == 0 || cur.BootID != bootID() {
		return nil, err
	}
	g, err := st.generation(cur.Running)
	if err != nil {
		return nil, err
	}
	return h.session(st, cur).exceptionDrift(g)
}

func (s *session) exceptionDrift(g *Generation) (out []ExceptionDrift, err error) {
	if g.Closed || s.cur.Pending != nil {
		return nil, nil
	}
	hold, err := s.exceptions(s.now())
	if err != nil {
		return nil, fmt.Errorf("read the exceptions: %w", err)
	}
	holds, loaded, leftOut := Among(hold), Among(g.Exceptions), Among(g.LeftOut)
	for _, e := range LiveExceptions(g.Exceptions, s.now()) {
		if !holds(e) {
			out = append(out, ExceptionDrift{e, true})
		}
	}
	for _, e := range hold {
		if !loaded(e) && !leftOut(e) {
			out = append(out, ExceptionDrift{e, false})
		}
	}
	return out, nil
}

// lacksExceptions says that other exceptions hold than the running generation has.
func (s *session) lacksExceptions() bool {
	g, err := s.generation(s.cur.Running)
	if err != nil {
		return false // somethingWaits says so
	}
	drift, err := s.exceptionDrift(g)
	return err == nil && len(drift) > 0
}

// except notes with which exceptions its rules were made.
func (g *Generation) except(in Input) {
	g.Exceptions = in.Exceptions
	g.LeftOut = slices.DeleteFunc(slices.Clone(in.Hold), Among(in.Exceptions))
}
