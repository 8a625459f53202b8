package apply

import (
	"context"
	"errors"
	"slices"

	"sluice/internal/system/kernel/sysctl"
)

// untry restores what was before the settings that are not kept.
func (s *session) untry(k *tuning) error {
	var failed error
	pending := k.Pending
	k.Settings = slices.DeleteFunc(k.Settings, func(t TunedSetting) bool {
		return t.Before != "" && s.putBack(&t, t.Before, &failed) && t.Before == t.Old
	})
	if failed != nil {
		return failed
	}
	untried(k.Settings)
	k.Pending, k.Persist, k.Unset = nil, "", false
	s.point("back")
	if err := s.saveTuning(k); err != nil {
		return err
	}
	disarm(pending)
	return nil
}

// putBack writes a value, unless somebody else has set another one than Sluice did. What the
// policy in force sets goes there when the policy goes.
func (s *session) putBack(t *TunedSetting, value string, failed *error) bool {
	var byPolicy *SetByPolicyError
	if err := s.policed(s.cur.Running, t.Name); errors.As(err, &byPolicy) {
		if _, known := s.cur.Originals[t.Name]; known {
			s.cur.Originals[t.Name] = value
			err = s.saveCurrent(s.cur)
			*failed = errors.Join(*failed, err)
			return err == nil
		}
		return true
	}
	have, err := sysctl.Read(t.Name)
	switch {
	case isMissing(err):
		return true // it went with its module
	case err == nil && have != t.New && have != value && t.Before == "":
		s.note("%s is %s, which somebody else has set: it stays", t.Name, have)
		return true
	case err == nil && have != value:
		err = sysctl.Write(t.Name, value)
		s.point("back " + t.Name)
	}
	*failed = errors.Join(*failed, err)
	return err == nil
}

// Untuning is which settings go back.
type Untuning struct {
	For   string `json:"for,omitempty"`   // what they were set for; "" is all of them
	Trial bool   `json:"trial,omitempty"` // those alone that wait for a confirmation, to what they were before it
	Force bool   `json:"force,omitempty"` // also where the connection table then has more entries than room
}

// Untune takes settings back to what they were before any command set them, and the files of
// boot with them.
func (h *Host) Untune(ctx context.Context, u Untuning) (*Tuned, error) {
	if !h.known() {
		return &Tuned{Settings: []TunedSetting{}}, nil
	}
	s, _, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	k, err := s.tuning()
	if err != nil {
		return nil, err
	}
	if u.Trial {
		out := &Tuned{Settings: []TunedSetting{}}
		if k.Pending == nil {
			return out, nil
		}
		for _, t := range k.Settings {
			if onTrial(t) {
				t.Old = t.Before
				out.Settings = append(out.Settings, t)
			}
		}
		return out, s.untry(k)
	}
	mine := func(t TunedSetting) bool { return u.For == "" || t.For == u.For }
	for _, t := range k.Settings {
		if t.Name == tableMost && mine(t) && !u.Force {
			if err := refuseShrink(Setting{t.Name, t.Old}); err != nil {
				return nil, err
			}
		}
	}
	out := &Tuned{Settings: []TunedSetting{}}
	var failed error
	for _, t := range k.Settings {
		if !mine(t) {
			continue
		}
		if s.putBack(&t, t.Old, &failed) {
			out.Settings = append(out.Settings, t)
		}
	}
	if failed != nil {
		return out, failed
	}
	k.Settings = slices.DeleteFunc(k.Settings, mine)
	pending := k.Pending
	if !slices.ContainsFunc(k.Settings, onTrial) {
		k.Pending = nil
	}
	s.point("back")
	err = s.persist(k)
	if k.Pending == nil {
		disarm(pending)
	}
	return out, err
}

// settleTuned takes back what was not confirmed in time, or not set to the end, and starts a
// watcher again where one is gone.
func (s *session) settleTuned() {
	k, err := s.tuning()
	if err != nil {
		s.note("%v", err)
		return
	}
	p := k.Pending
	switch {
	case k.BootID == "":
		return
	case k.BootID != bootID():
		// What no file has went with the reboot.
		k.BootID, k.Pending, k.Persist, k.Unset = bootID(), nil, "", false
		k.Settings = slices.DeleteFunc(k.Settings, func(t TunedSetting) bool { return !t.Persist })
		untried(k.Settings)
		err = s.saveTuning(k)
	case k.Unset:
		s.note("a command that changed settings was interrupted: restoring the old values")
		err = s.untry(k)
	case p == nil && (slices.ContainsFunc(k.Settings, onTrial) || k.Persist != ""):
		err = s.keepTuned(k) // all of them were set
	case p == nil:
	case p.Left() == 0:
		s.shout("the tuned settings were not confirmed in time: restoring the old values")
		s.tunedLate = true
		err = s.untry(k)
	default:
		if armed := *p; !s.watched(&armed) {
			if err := s.armAgain(&armed); err != nil {
				s.note("the watcher of the tuned settings is gone, and another cannot be started: %v; the first command after the time is up restores the old values", err)
			}
			k.Pending = &armed
			err = s.saveTuning(k)
		}
	}
	if err != nil {
		s.note("the old values of tuned settings cannot be restored: %v", err)
	}
}

// untried makes settings what they were before they were tried.
func untried(list []TunedSetting) {
	for i := range list {
		if t := &list[i]; t.Before != "" {
			t.New, t.Before = t.Before, ""
		}
	}
}

// errTunedLate is for a confirmation that comes after the end of the time.
var errTunedLate = errors.New("too late: the tuned settings were not confirmed in time, and have their old values again")

// confirmTuned keeps settings that wait for a confirmation; alone says that nothing else does.
func (s *session) confirmTuned() (alone bool, err error) {
	alone = s.cur.Pending == nil && s.late == nil && s.kept == nil && !s.keptNow
	k, err := s.tuning()
	switch {
	case err != nil:
		return false, nil //nolint:nilerr // settling told of it, and a policy that waits is confirmed anyway
	case k.Pending == nil && s.tunedLate && alone:
		return true, errTunedLate
	case k.Pending == nil:
		return false, nil
	}
	err = s.keepTuned(k)
	switch {
	case alone:
		return true, err
	case err != nil:
		s.note("%v", err)
	default:
		s.note("the tuned settings are confirmed")
	}
	return false, nil
}
