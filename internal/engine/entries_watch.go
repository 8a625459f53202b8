package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/internal/system/kernel/conntrack"
	"sluice/internal/system/kernel/sysctl"
)

// EntryWatch asks what happens to entries of the connection table.
type EntryWatch struct {
	EntryChoice
	Events  []string `json:"events,omitempty"`  // of EntryEvents; none: all of them
	Most    uint64   `json:"most,omitempty"`    // it ends after so many; 0 is never
	Seconds float64  `json:"seconds,omitempty"` // it ends after so long; 0 is never
}

// WatchedEntry is what happened to an entry, or how many events could not be read in time.
type WatchedEntry struct {
	Time   time.Time `json:"time"`
	Event  string    `json:"event"` // one of EntryEvents, or "missed"
	Missed uint32    `json:"missed,omitempty"`
	// TableEntry has what the event says of the entry, nil of missed ones: the state of TCP
	// where it changed, packets and bytes where it ended.
	*TableEntry
}

// WatchedEntries is what was told.
type WatchedEntries struct {
	Events uint64 `json:"events"` // that matched
	Missed uint64 `json:"missed"` // of those that matched and others
}

// EntryEvents are the words of EntryWatch.Events.
func EntryEvents() []string { return slices.Clone(entryEvents) }

var entryEvents = []string{conntrack.Made.String(), conntrack.Updated.String(), conntrack.Destroyed.String()}

// ErrNoEvents says that the kernel reports no events.
var ErrNoEvents = errors.New("the kernel sends no events of the connection table: net.netfilter.nf_conntrack_events is 0")

// errWatched ends a watch that has told all that was asked for.
var errWatched = errors.New("watched enough")

// WatchEntries tells seen what happens to entries until the context ends, or what was asked
// for was told. No more is held than one part of what the kernel tells. Since Linux 5.19 an
// entry that was made while nobody listened has no events (nf_ct_ecache_ext_add).
func (h *Host) WatchEntries(ctx context.Context, q EntryWatch, seen func(WatchedEntry)) (*WatchedEntries, error) {
	matches, err := q.matcher()
	if err != nil {
		return nil, err
	}
	var kinds []conntrack.Event
	for _, word := range q.Events {
		n := slices.Index(entryEvents, word)
		if n < 0 {
			return nil, unknownWord("connection event", word, entryEvents)
		}
		kinds = append(kinds, conntrack.Event(n))
	}
	if kinds == nil {
		kinds = []conntrack.Event{conntrack.Made, conntrack.Updated, conntrack.Destroyed}
	}
	if q.Seconds < 0 || q.Seconds > maxWatch.Seconds() {
		return nil, fmt.Errorf("cannot watch for %g seconds: at most %.0f", q.Seconds, maxWatch.Seconds())
	}
	if err := h.needTable(); err != nil {
		return nil, err
	}
	var events *conntrack.Events
	err = h.Netns.Do(func() (err error) {
		if text, err := sysctl.Read("net.netfilter.nf_conntrack_events"); err == nil && strings.TrimSpace(text) == "0" {
			return ErrNoEvents
		}
		events, err = conntrack.OpenEvents(slices.Compact(slices.Sorted(slices.Values(kinds)))...)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer events.Close()
	if q.Seconds > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, time.Duration(q.Seconds*float64(time.Second)))
		defer stop()
	}
	out := &WatchedEntries{}
	err = events.Read(ctx, func(what conntrack.Event, e *conntrack.Entry) error {
		if !matches(e) {
			return nil
		}
		entry := tableEntry(e)
		if e.State == 0 {
			entry.State = "" // the event does not say it
		}
		seen(WatchedEntry{Time: time.Now(), Event: what.String(), TableEntry: &entry})
		if out.Events++; out.Events == q.Most {
			return errWatched
		}
		return nil
	}, func(n uint32) {
		out.Missed += uint64(n)
		seen(WatchedEntry{Time: time.Now(), Event: "missed", Missed: n})
	})
	if errors.Is(err, errWatched) {
		err = nil
	}
	return out, err
}

// maxWatch is the longest that a watch with an end may take.
const maxWatch = 365 * 24 * time.Hour
