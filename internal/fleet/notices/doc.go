// Package notices is how a controller tells people what is wrong in its fleet: the file
// notices.yaml of its directory, and the ways to a receiver: a webhook, mail, the journal. It
// keeps nothing, and each way ends in time whatever the receiver does. Callers: the controller,
// which says what goes to whom and when, and its commands.
package notices

import (
	"time"
)

// Kind is what something is that people hear of.
type Kind string

// The kinds there are.
const (
	Drift       Kind = "drift"            // the kernel of a host differs from its policy
	Refused     Kind = "refused"          // a host refuses what it should run
	Halted      Kind = "halted"           // a roll-out was halted, or is taken back
	Certificate Kind = "host-certificate" // a host's certificate is near its end
	Signature   Kind = "signature"        // something signed is near its end
	List        Kind = "list"             // a live list cannot be renewed
)

// Kinds are all of them.
func Kinds() []string {
	return []string{string(Drift), string(Refused), string(Halted), string(Certificate), string(Signature), string(List)}
}

// Event is what happens to something that people hear of.
type Event string

// The events there are.
const (
	Begins Event = "begins"
	Lasts  Event = "lasts" // a reminder
	Ended  Event = "ended"
	Test   Event = "test"
)

// Notice is one thing as a receiver hears of it.
type Notice struct {
	Number  int64     `json:"number"` // the same for what begins, lasts and ends
	Event   Event     `json:"event"`
	Kind    Kind      `json:"kind"`
	Subject string    `json:"subject"` // a host, the number of a roll-out, a set, the name of something signed
	Text    string    `json:"text"`    // one line
	Since   time.Time `json:"since"`
	Ended   time.Time `json:"ended,omitzero"`
}

// Message is all that goes to a receiver at once.
type Message struct {
	Fleet   string   `json:"fleet"`
	Text    string   `json:"text"` // all of it in one line
	Notices []Notice `json:"notices"`
	LeftOut int      `json:"left-out,omitempty"` // how many more there are
}
