package fleet

import "time"

// dbClock is the clock of the fleet's database, by which bans begin and end. What a message
// says of it is a while old, so that the latest that was said counts: a message that was held
// up makes nothing last longer. Of an hour ago it counts no more: clocks drift apart. An answer
// is no older than its question, so that it may say that the clock was set back.
type dbClock struct{ said, at time.Time }

// setBack is how far behind no message is except for one that was held up, and longer than
// controllers keep an answer.
const setBack = time.Minute

// hear takes what a message says, which answers what was asked at a time; zero: nothing was.
func (c *dbClock) hear(said, asked time.Time) {
	now := time.Now()
	switch age := now.Sub(c.at); {
	case c.at.IsZero(), age > time.Hour, said.After(c.said.Add(age)):
		c.said, c.at = said, now
	case !asked.IsZero() && c.behind(said):
		c.said, c.at = said, asked
	}
}

// behind says that a message tells less than what the clock has got to by now: it was held up
// for long, or the clock was set back.
func (c *dbClock) behind(said time.Time) bool {
	return !c.at.IsZero() && c.said.Add(time.Since(c.at)).Sub(said) > setBack
}

// left is how long it is until a moment of that clock.
func (c *dbClock) left(t time.Time) time.Duration { return t.Sub(c.said.Add(time.Since(c.at))) }
