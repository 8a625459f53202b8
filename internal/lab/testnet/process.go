package testnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Run runs a program inside the namespace to its end and returns what it wrote
// to standard output and standard error together.
func (s *Namespace) Run(name string, args ...string) (string, error) {
	return s.RunInput("", name, args...)
}

// RunInput is Run with something on standard input.
func (s *Namespace) RunInput(input, name string, args ...string) (string, error) {
	return s.RunContext(context.Background(), input, name, args...)
}

// RunContext is RunInput under a context, whose end kills the program.
func (s *Namespace) RunContext(ctx context.Context, input, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	// A group of its own: a Ctrl-C is for the caller, who says what it ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if input != "" {
		cmd.Stdin = bytes.NewReader([]byte(input))
	}
	if err := s.StartCommand(cmd); err != nil {
		return "", fmt.Errorf("start %s in %s: %w", name, s.label, err)
	}
	if err := cmd.Wait(); err != nil {
		return out.String(), fmt.Errorf("%s in %s: %w: %s", name, s.label, err, bytes.TrimSpace(out.Bytes()))
	}
	return out.String(), nil
}

// MustRun is Run as a set-up step.
func (s *Namespace) MustRun(name string, args ...string) string {
	s.net.helper()
	out, err := s.Run(name, args...)
	if err != nil {
		s.net.fail("%w", err)
	}
	return out
}

// Nft loads a ruleset with nft(8) as a set-up step.
func (s *Namespace) Nft(ruleset string) {
	s.net.helper()
	if _, err := s.RunInput(ruleset, "nft", "-f", "-"); err != nil {
		s.net.fail("%w\nruleset:\n%s", err, ruleset)
	}
}

// Process is a program that runs inside a namespace until it is stopped; it is
// stopped with the Net at the latest.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	out  lockedBuffer
	err  error
}

// Start starts a program inside the namespace as a set-up step. The program
// belongs to a process group of its own, which is killed as a whole.
func (s *Namespace) Start(name string, args ...string) *Process {
	s.net.helper()
	p := &Process{cmd: exec.Command(name, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := s.StartCommand(p.cmd); err != nil {
		s.net.fail("start %s in %s: %w", name, s.label, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	s.net.onClose(func() error { p.Stop(); return nil })
	return p
}

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Output is what the program has written so far, both streams together.
func (p *Process) Output() string { return p.out.String() }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop kills the program's process group and waits for the program's end.
func (p *Process) Stop() {
	select {
	case <-p.done:
		return
	default:
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// WaitTCP waits until something accepts TCP connections at the address, asked
// from inside the namespace.
func (s *Namespace) WaitTCP(to netip.AddrPort, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		r := s.TryTCP(TCPTry{To: to, Patience: patience})
		if r.Outcome == Answered {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("nothing accepts connections at %s in %s after %s: %w", to, s.label, patience, r.Error())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Dial opens a connection from inside the namespace, for clients such as
// http.Transport: the socket stays inside, whoever uses it.
func (s *Namespace) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, errors.New("dial inside a namespace wants an address, not a name: " + address)
	}
	err = s.Do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// PassOn has connections to a port of this machine's loopback go to an address inside the
// namespace, as a set-up step. They end where nobody listens there.
func (s *Namespace) PassOn(to string) netip.AddrPort {
	s.net.helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.net.fail("pass connections on to %s in %s: %w", to, s.label, err)
	}
	s.net.onClose(l.Close)
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return // closed
			}
			go func() {
				defer near.Close()
				far, err := s.Dial(context.Background(), "tcp", to)
				if err != nil {
					return
				}
				defer far.Close()
				go func() {
					defer far.Close()
					_, _ = io.Copy(far, near)
				}()
				_, _ = io.Copy(near, far)
			}()
		}
	}()
	return peerOf(l.Addr())
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
