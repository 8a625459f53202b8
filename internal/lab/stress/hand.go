package stress

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"sluice/internal/engine/apply"
	"sluice/internal/lab/testnet"
	"sluice/internal/lab/timed"
	"sluice/internal/system/host"
	"sluice/internal/system/kernel/memgroup"
)

// handVariable in the environment makes a process the hand.
const handVariable = "SLUICE_STRESS_HAND"

// order is what the hand is told, one a line of JSON.
type order struct {
	Do    string // "apply", "remove", "run", "status", "facts", "text" (of the rules), "leak" (a file and a table)
	File  string
	Args  []string // of "run": a program with its arguments
	State string   // state directory
	Data  string   // directory of the country data; "" is the built-in snapshot
	// Group is a folder of control groups of version 1, that alone of the thread
	// which does the work; "" leaves the thread where it is.
	Group string
	// Squeeze leaves the group that the hand is in no more than this many bytes when
	// it comes to the contents of the first set; 0: as much as it takes.
	Squeeze int64
	Within  string // the folder of that group
}

// answer is what comes back, one a line.
type answer struct {
	Error   string
	Took    time.Duration
	Outcome *apply.Outcome
	Facts   *host.Facts
	Notes   []string
	Text    string
	Status  *apply.Status
}

// The memory of a process is charged to the group of its first thread (mm->owner),
// which therefore does no work that is to be charged elsewhere: see memgroup.Join.
func init() {
	if os.Getenv(handVariable) != "" {
		runtime.LockOSThread()
	}
}

// HandIfAsked makes this process the hand and ends with it, where it was started
// as such: the first thing that a program with this package does.
func HandIfAsked() (status int, asked bool) {
	if os.Getenv(handVariable) == "" {
		return 0, false
	}
	done := make(chan error)
	go func() { done <- serveOrders(os.Stdin, os.Stdout) }()
	if err := <-done; err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1, true
	}
	return 0, true
}

func serveOrders(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	w := &worker{}
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		begin := time.Now()
		a, err := w.do(context.Background(), o)
		a.Took = time.Since(begin)
		if err != nil {
			a.Error = err.Error()
		}
		text, err := json.Marshal(a)
		if err != nil {
			return err
		}
		if _, err := out.Write(append(text, '\n')); err != nil {
			return err
		}
	}
	return lines.Err()
}

// hand is the process, as the others see it.
type hand struct {
	cmd     *exec.Cmd
	orders  io.WriteCloser
	answers *bufio.Reader
	errors  *strings.Builder
	state   string
	data    string
	group   *memgroup.Group // of control; nil where there is none
}

// startHand starts the hand inside a namespace, with a state directory of its
// own, and variables of the environment beside those of this process.
func startHand(inside *testnet.Namespace, state, data string, variables ...string) (*hand, error) {
	return launchHand(state, data, inside.Do, processAttributes(), variables)
}

// launchHand starts the hand by way of where, which runs what starts it.
func launchHand(state, data string, where func(func() error) error, attributes *syscall.SysProcAttr, variables []string) (*hand, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h := &hand{cmd: exec.Command(program, "stress"), state: state, data: data, errors: &strings.Builder{}}
	h.cmd.Env = append(append(timed.Environment(), variables...), handVariable+"=1")
	h.cmd.SysProcAttr = attributes
	h.cmd.Stderr = h.errors
	out, err := h.cmd.StdoutPipe()
	if err == nil {
		h.orders, err = h.cmd.StdinPipe()
	}
	if err == nil {
		err = where(h.cmd.Start)
	}
	if err != nil {
		return nil, fmt.Errorf("start the hand: %w", err)
	}
	h.answers = bufio.NewReader(out)
	if h.group, err = memgroup.New("hand"); err != nil {
		h.group = nil // what only the group can tell is left out
	} else if err := h.group.Add(h.cmd.Process.Pid); err != nil {
		return nil, errors.Join(err, h.stop())
	}
	return h, nil
}

// do gives an order and waits for the answer. An error of the product comes
// back in the answer, and as an error.
func (h *hand) do(o order) (answer, error) {
	o.State, o.Data = h.state, h.data
	var a answer
	text, err := json.Marshal(o)
	if err != nil {
		return a, err
	}
	if _, err := h.orders.Write(append(text, '\n')); err != nil {
		return a, fmt.Errorf("the hand is gone: %w\n%s", err, h.errors)
	}
	line, err := h.answers.ReadBytes('\n')
	if err != nil {
		return a, fmt.Errorf("the hand is gone: %w\n%s", err, h.errors)
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return a, err
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

func (h *hand) apply(file string) (answer, error) { return h.do(order{Do: "apply", File: file}) }

func (h *hand) pid() int { return h.cmd.Process.Pid }

// stop ends the hand, and its group.
func (h *hand) stop() error {
	_ = h.orders.Close()
	err := h.cmd.Wait()
	if h.group != nil {
		err = errors.Join(err, h.group.Remove())
	}
	return err
}
