package testnet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"regexp"
	"sync"
	"sync/atomic"
	"syscall"
)

// Net is a laboratory: namespaces, links between them, processes in them.
// Its methods may be called from several goroutines.
type Net struct {
	t      TB // nil when made by Create
	prefix string

	mu     sync.Mutex
	closed bool
	spaces []*Namespace
	undo   []func() error // run last to first
	macs   uint32
}

// TB is what is asked of a test; every testing.TB has it. Commands of the product
// make laboratories too, and leave package testing out.
type TB interface {
	Helper()
	Cleanup(f func())
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// setupError carries a failed set-up step from a method to Net.Try.
type setupError struct{ err error }

var prefixPattern = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// sequence makes names unique within the process.
var sequence atomic.Uint32

// New makes a laboratory that is closed when the test ends, whatever way it
// ends. Without the right to make network namespaces the test is skipped (failed
// when CI=true).
func New(t TB) *Net {
	t.Helper()
	Require(t, Namespaces)
	n, err := Create("test")
	if err != nil {
		t.Fatal(err)
	}
	n.t = t
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close test network: %v", err)
		}
	})
	return n
}

// Create makes a laboratory outside of a test. The prefix (lower-case letters,
// digits, single hyphens) becomes part of every namespace's name. The caller
// closes it.
func Create(prefix string) (*Net, error) {
	if !prefixPattern.MatchString(prefix) {
		return nil, fmt.Errorf("bad prefix %q for namespaces: want lower-case letters, digits and single hyphens", prefix)
	}
	if err := prepareRunDir(); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("%w\nhint: network namespaces need root", err)
		}
		return nil, err
	}
	reapOnce()
	n := &Net{prefix: prefix}
	register(n)
	return n, nil
}

// Within makes a laboratory for a function, and closes it behind that.
func Within(prefix string, f func(*Net) error) error {
	n, err := Create(prefix)
	if err != nil {
		return err
	}
	return errors.Join(f(n), n.Close())
}

// Try runs a set-up function and returns the failure of the first set-up step
// in it that failed. It serves laboratories made by Create.
func (n *Net) Try(setup func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case setupError:
			err = r.err
		default:
			panic(r)
		}
	}()
	setup()
	return nil
}

func (n *Net) fail(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	if n.t != nil {
		n.t.Helper()
		n.t.Fatal(err)
	}
	panic(setupError{err})
}

// Close stops the processes and removes the namespaces, and with them all that
// is inside. Closing twice is allowed.
func (n *Net) Close() error {
	unregister(n)
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	undo, spaces := n.undo, n.spaces
	n.mu.Unlock()

	var errs []error
	for i := len(undo) - 1; i >= 0; i-- {
		errs = append(errs, undo[i]())
	}
	for i := len(spaces) - 1; i >= 0; i-- {
		errs = append(errs, spaces[i].remove())
	}
	return errors.Join(errs...)
}

// OnClose adds a step of Close, for what others put into the laboratory; steps run
// last to first, before the namespaces go.
func (n *Net) OnClose(step func() error) { n.onClose(step) }

// onClose is OnClose for what this package makes.
func (n *Net) onClose(step func() error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.undo = append(n.undo, step)
}

// live are the laboratories that a signal has to close.
var live struct {
	sync.Mutex
	nets    map[*Net]bool
	signals chan os.Signal
	left    bool
}

// LeaveSignals leaves SIGINT and SIGTERM to the program, which closes its
// laboratories itself: it has something to say before it ends. It has to be called
// before the first laboratory is made.
func LeaveSignals() {
	live.Lock()
	defer live.Unlock()
	live.left = true
}

func register(n *Net) {
	live.Lock()
	defer live.Unlock()
	if live.nets == nil {
		live.nets = map[*Net]bool{}
	}
	live.nets[n] = true
	if live.signals == nil && !live.left {
		live.signals = make(chan os.Signal, 1)
		signal.Notify(live.signals, os.Interrupt, syscall.SIGTERM)
		go closeOnSignal(live.signals)
	}
}

func unregister(n *Net) {
	live.Lock()
	defer live.Unlock()
	delete(live.nets, n)
	if len(live.nets) == 0 && live.signals != nil {
		signal.Stop(live.signals)
		close(live.signals)
		live.signals = nil
	}
}

func closeOnSignal(signals <-chan os.Signal) {
	s, ok := <-signals
	if !ok {
		return
	}
	live.Lock()
	var nets []*Net
	for n := range live.nets {
		nets = append(nets, n)
	}
	live.Unlock()
	for _, n := range nets {
		if err := n.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close test network:", err)
		}
	}
	signal.Reset(s)
	if sig, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(os.Getpid(), sig)
	}
}
