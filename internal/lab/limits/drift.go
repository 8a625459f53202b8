package limits

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"sluice/internal/engine/apply"
	"sluice/internal/lab/measure"
)

// fixed is what a restore by an agent is timed as.
const fixed = "nft flush ruleset, until the rules are back and proved"

// drift times how long an agent takes to put back what somebody flushed.
func (b *bench) drift() (_ lookup, err error) {
	k := &keeping{applying: &applying{bench: b, taken: taken{}}, socket: filepath.Join(b.dir, "restorer")}
	if k.own, err = measure.NewLab(b.net, "own"); err != nil {
		return nil, err
	}
	if k.file, err = k.serving(114); err != nil {
		return nil, err
	}
	if _, err := k.apply(k.own, k.file); err != nil {
		return nil, err
	}
	file, err := b.policy("agent.yaml", "version: 1\ndrift: restore\n")
	if err != nil {
		return nil, err
	}
	for range b.rounds(15) {
		if err := k.fix(file); err != nil {
			return nil, err
		}
	}
	b.add(fixed, measured, clock, "ms", k.of(clock, fixed))
	return k.of, nil
}

// fix has an agent that has put nothing back before, since three times stop it.
func (k *keeping) fix(file string) (err error) {
	found := filepath.Join(k.state, "netns", k.own.Namespace.Name(), "agent", "drift.json")
	if err := os.RemoveAll(found); err != nil {
		return err
	}
	stop, err := k.agent("--config", file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := until(found, func(w apply.Watched) bool { return !w.Proved.IsZero() }); err != nil {
		return err
	}
	all, err := since(func() error {
		if _, err := k.inside(k.own, nil, "nft", "flush", "ruleset"); err != nil {
			return err
		}
		return until(found, func(w apply.Watched) bool { return w.Last != nil && w.Last.Event == "restored" })
	})
	if err != nil {
		return err
	}
	k.put(clock, fixed, all)
	return nil
}

// until waits for what an agent records.
func until(file string, is func(apply.Watched) bool) error {
	var w apply.Watched
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(file)
		if err == nil && json.Unmarshal(text, &w) == nil && is(w) {
			return nil
		}
	}
	return fmt.Errorf("the agent does not come so far: %+v", w)
}
