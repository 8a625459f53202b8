// Package work does one operation of the local API in a process of its own, whose memory
// goes with it, and which holds the firewall's lock in the place of the agent: Run is for
// the agent, and Order.Do for that process. Callers: the agent, cli.
package work

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/agent/client"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/system/host"
	"sluice/internal/words"
)

// Order is what such a process has to do, and for whom.
type Order struct {
	Operation string          `json:"operation"` // its operationId
	Request   json.RawMessage `json:"request,omitempty"`
	Wait      time.Duration   `json:"wait"` // for another change
	By        apply.Author    `json:"by"`
	Session   *host.SSHClient `json:"session,omitempty"`
}

// Do does it. The process is there for nothing else: it goes to the caller's directory.
func (o Order) Do(ctx context.Context, d client.Door) (any, error) {
	switch o.Operation {
	case "status":
		return with(o, func(in api.StatusParams) (any, error) { return d.Status(ctx, !in.Fast) })
	case "verify":
		return with(o, func(in api.VerifyRequest) (any, error) { return d.Verify(ctx, nil, in.Own) })
	case "bans":
		return d.Bans(ctx)
	case "apply":
		return with(o, func(in api.ApplyRequest) (any, error) {
			if in.Policy.Directory != "" {
				if err := os.Chdir(in.Policy.Directory); err != nil {
					return nil, err
				}
			}
			return d.Apply(ctx, policyOf(in), optionsOf(in.Options))
		})
	case "confirm":
		n, err := d.Confirm(ctx)
		if err != nil {
			return nil, err
		}
		return &apply.Outcome{Generation: n}, nil
	case "rollback":
		return with(o, func(in api.RollbackRequest) (any, error) {
			n := apply.Before
			if in.Generation != 0 {
				n = in.Generation
			}
			return d.Rollback(ctx, n, optionsOf(in.Options))
		})
	}
	return nil, &api.Failure{Text: fmt.Sprintf("there is no operation %q", o.Operation), Exit: 2, Kind: api.NotServed}
}

// with reads the request, which may be empty.
func with[T any](o Order, do func(T) (any, error)) (any, error) {
	var in T
	if len(o.Request) > 0 {
		if err := json.Unmarshal(o.Request, &in); err != nil {
			return nil, err
		}
	}
	return do(in)
}

// orders are those of rules, by their words; "" is as the running policy has them.
var orders = map[api.ApplyRequestOrder]engine.Order{api.Running: engine.ByRunning, api.Hits: engine.ByHits, api.Written: engine.AsWritten}

func policyOf(in api.ApplyRequest) engine.Request {
	return engine.Request{File: in.Policy.File, Without: in.Without, Order: orders[in.Order], Hits: in.Hits, NoExpect: in.NoExpect}
}

func optionsOf(in api.ChangeOptions) apply.Options {
	return apply.Options{Confirm: time.Duration(in.Confirm * float64(time.Second)), Keep: in.Keep, Force: in.Force, Verify: !in.NoVerify, Cut: in.Cut}
}

// Failed is an error as the API has it, in the words of the commands. Here is the flags
// that lead a command to the host, and done is what was done before, or nil.
func Failed(err error, here string, done any) error {
	var f *api.Failure
	if err == nil || errors.As(err, &f) {
		return err
	}
	f = &api.Failure{}
	f.Text, f.Exit = words.Ended(err, here)
	if busy := (*apply.BusyError)(nil); errors.As(err, &busy) {
		f.Kind = api.Busy
	}
	if result, err := json.Marshal(done); err == nil && string(result) != "null" {
		f.Result = result
	}
	return f
}

// endTime is how long a process may take to undo what it has begun, once the context ends.
const endTime = time.Minute

// Run has a process do an order, and passes on what it tells. Command is the program with
// the flags that lead it to the host. When the context ends the process is asked to end,
// as by Ctrl-C.
func Run(ctx context.Context, command []string, o Order, told func(api.Line)) (json.RawMessage, error) {
	order, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, command[0], append(command[1:len(command):len(command)], "work")...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = endTime
	c.Stdin, c.Stderr = bytes.NewReader(order), os.Stderr
	lines, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	result, err := api.ReadLines(lines, told)
	ended := c.Wait()
	if errors.Is(err, api.ErrEnded) && ended != nil {
		err = &api.Failure{Text: fmt.Sprintf("what the agent started for this ended: %v; sluice status says what holds", ended), Exit: 2}
	}
	return result, err
}
