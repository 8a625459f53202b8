package testnet

import (
	"errors"
	"fmt"
	"net/netip"
)

// Outcome says what a try returned.
type Outcome int

// What can come back of a try.
const (
	Failed      Outcome = iota // the try itself went wrong: Result.Err says how
	Answered                   // connected, echoed
	Reset                      // a TCP reset
	Unreachable                // an ICMP error, in Result.ICMPType and ICMPCode
	Silent                     // nothing, within the time
)

func (o Outcome) String() string {
	switch o {
	case Failed:
		return "failed"
	case Answered:
		return "answered"
	case Reset:
		return "reset"
	case Unreachable:
		return "unreachable"
	case Silent:
		return "silent"
	}
	return fmt.Sprintf("outcome %d", int(o))
}

// Result is what came of one try.
type Result struct {
	Outcome  Outcome
	ICMPType uint8          // with Unreachable
	ICMPCode uint8          // with Unreachable
	ICMPFrom netip.Addr     // with Unreachable: who sent the error
	Local    netip.AddrPort // the address that the socket had
	Reply    []byte         // what was echoed, without the peer's name that a server of ours adds
	Peer     netip.AddrPort // how a server of ours saw us: differs from Local behind NAT
	Err      error          // with Failed, Reset and Unreachable
}

// Error makes an error of a result that is not an answer.
func (r Result) Error() error {
	if r.Outcome == Answered {
		return nil
	}
	if r.Err == nil {
		return errors.New(r.Outcome.String())
	}
	return fmt.Errorf("%s: %w", r.Outcome, r.Err)
}

func (r Result) String() string {
	switch {
	case r.Outcome == Unreachable:
		return fmt.Sprintf("unreachable (ICMP type %d code %d from %s)", r.ICMPType, r.ICMPCode, r.ICMPFrom)
	case r.Outcome == Failed:
		return fmt.Sprintf("failed: %v", r.Err)
	}
	return r.Outcome.String()
}

func failed(format string, args ...any) Result {
	return Result{Outcome: Failed, Err: fmt.Errorf(format, args...)}
}
