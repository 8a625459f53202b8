package trace

import (
	"errors"
	"fmt"
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/system/kernel/replica"
)

// Question is a packet that the firewall is asked about.
type Question struct {
	// Packet is it as it arrives, or as a local socket sends it. Its State is
	// what connection tracking is to say of it: "" is a packet of no known flow.
	// Without In, the interface is the one towards its source.
	Packet packet.Packet
	// Way is Out for a packet of a local socket, else it arrives.
	Way packet.Way
	// Called, where it is not nil, says what the caller calls source, destination, in and
	// state of a question, and what describes the host ("facts"), for messages.
	Called func(string) string
	// Progress, where it is not nil, is told what begins, of Steps things.
	Progress func(step int, what string)
}

func (q *Question) called(word string) string {
	if q.Called == nil {
		return word
	}
	return q.Called(word)
}

// Steps is how many things a question takes.
const Steps = 3

func (q *Question) begins(step int, what string) {
	if q.Progress != nil {
		q.Progress(step, what)
	}
}

// ErrQuestion says that the question cannot be asked, and not that something failed.
var ErrQuestion = errors.New("cannot be asked of the loaded firewall")

func refuse(hint, format string, args ...any) error {
	return fmt.Errorf("%s: %w\nhint: %s", fmt.Sprintf(format, args...), ErrQuestion, hint)
}

// check refuses what the copy cannot answer.
func (q *Question) check(c *replica.Copy) error {
	p := &q.Packet
	if !p.Source.IsValid() || !p.Destination.IsValid() {
		return refuse(fmt.Sprintf("give %s and %s", q.called("source"), q.called("destination")), "a packet without both addresses")
	}
	if p.Source.Unmap().Is4() != p.Destination.Unmap().Is4() {
		return refuse("give two of IPv4 or two of IPv6", "a packet from %s to %s", p.Source, p.Destination)
	}
	device := p.In
	if q.Way == packet.Out {
		device = p.Out
	}
	if device == "" {
		return nil
	}
	l, there := c.Link(device)
	if !there {
		return refuse(q.called("facts")+" shows the interfaces", "there is no interface %q", device)
	}
	if !l.Up {
		return refuse("set it up, or ask for another interface", "interface %s is down, so nothing passes it", device)
	}
	for _, master := range c.Links {
		if master.Index == l.Master && slices.Contains([]string{"bridge", "bond", "team"}, master.Kind) {
			return refuse("ask with that interface", "%s is a part of %s, which is the interface that the rules see", device, master.Name)
		}
	}
	return nil
}
