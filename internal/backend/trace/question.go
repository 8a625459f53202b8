package trace

import (
	"context"
	"errors"

	"sluice/internal/base/packet"
)

// Tracer is a backend that can ask what is loaded, by whomever, what it does with one
// packet.
type Tracer interface {
	// Trace asks about the calling thread's network namespace, which is read and left
	// as it is. The error is ErrQuestion where the question cannot be asked,
	// fs.ErrPermission where the process may not do what it takes.
	Trace(ctx context.Context, q Question) (*Result, error)
}

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

// Name is what the caller calls a word of a question.
func (q *Question) Name(word string) string {
	if q.Called == nil {
		return word
	}
	return q.Called(word)
}

// Steps is how many things a question takes.
const Steps = 3

// Begins tells who asked that one of the Steps begins.
func (q *Question) Begins(step int, what string) {
	if q.Progress != nil {
		q.Progress(step, what)
	}
}

// ErrQuestion says that the question cannot be asked, and not that something failed.
var ErrQuestion = errors.New("the loaded firewall cannot answer it")
