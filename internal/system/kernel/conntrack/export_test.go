package conntrack

import "time"

// AdoptWithin is Adopt with so much room in the table.
var AdoptWithin = adoptWithin

// CountBegunUpTo is CountBegun with so many messages a second.
var CountBegunUpTo = countBegun

// Told is how many messages there were.
func (b *Begun) Told() uint64 { return b.told }

// ParseEvents is for a fuzzer.
var ParseEvents = parseEvents

// Shrink leaves a socket the least room for what is not read.
func (e *Events) Shrink() error { return e.conn.SetReadBuffer(1) }

// Again has events read once more, after a context has ended.
func (e *Events) Again() error { return e.conn.SetReadDeadline(time.Time{}) }
