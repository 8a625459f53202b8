package nft

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Session is an nft that goes on running and takes transactions one after the other
// over one socket. A table that it makes with "flags owner" is that socket's: nobody
// else can change it, and the kernel deletes it when the socket is closed. nft ends
// with its input, so a session ends with the process that holds it, by whatever end.
// It is for one goroutine at a time.
type Session struct {
	input    io.WriteCloser
	text     *os.File // in memory, so that nothing stays behind; nft reads it as its descriptor 3
	problems chan string
	done     chan struct{}
	process  *os.Process
	number   int
	close    sync.Once
}

// ErrEnded says that the nft of a session has ended, and with it what it owned.
var ErrEnded = errors.New("the nft that owned the table has ended")

// killGrace is how long after its time nft is killed, by a process that depends on
// nobody; closeGrace is how long it may take to end by itself.
const (
	killGrace  = 10 * time.Second
	closeGrace = 5 * time.Second
)

// OpenSession starts nft in the network namespace of the calling thread. Some time
// after life it is killed, even while this process is stopped or stuck; 0 is never.
func OpenSession(life time.Duration) (*Session, error) {
	program, err := path()
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("transaction", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	s := &Session{text: os.NewFile(uintptr(fd), "transaction"), problems: make(chan string, 64), done: make(chan struct{})}
	args := []string{program, "-i"}
	if timeout, err := exec.LookPath("timeout"); err == nil && life > 0 {
		seconds := strconv.FormatFloat((life + killGrace).Seconds(), 'f', 0, 64)
		args = append([]string{timeout, "--foreground", "--signal=KILL", seconds}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.ExtraFiles = []*os.File{s.text}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for the caller
	// No history of commands is kept: there is no such directory.
	cmd.Env = append(os.Environ(), "LC_ALL=C", "HOME=/dev/null", "TERM=dumb")
	stderr, err := cmd.StderrPipe()
	if err == nil {
		s.input, err = cmd.StdinPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		_ = s.text.Close()
		return nil, fmt.Errorf("start nft: %w", err)
	}
	s.process = cmd.Process
	go func() {
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			s.problems <- lines.Text()
		}
		_ = cmd.Wait() // it was killed, or its input ended: either is what closing does
		close(s.done)
		close(s.problems)
	}()
	return s, nil
}

// included is how nft names the text, and marker what ends the answer to one: nft
// takes it for a mistake and says so after all that it has to say of the text.
const included = "/proc/self/fd/3"

func marker(n int) string { return fmt.Sprintf("sluice-transaction-%d-ends-here", n) }

// Run loads text as one transaction, as the function Run does. After an error of ctx
// the session is closed.
func (s *Session) Run(ctx context.Context, text string) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, Patience)
		defer cancel()
	}
	if err := s.write(text); err != nil {
		return err
	}
	s.number++
	if _, err := fmt.Fprintf(s.input, "include \"%s\"\n%s\n", included, marker(s.number)); err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrEnded, err), s.Close())
	}
	problems, err := s.answer(ctx)
	if err != nil {
		return err
	}
	_ = s.text.Truncate(0) // memory; nothing reads it any more
	if slices.ContainsFunc(problems, func(line string) bool { _, is := parseProblem(line); return is }) {
		return parseError([]string{"-i"}, text, strings.Join(problems, "\n"))
	}
	Committed()
	return nil
}

func (s *Session) write(text string) error {
	err := s.text.Truncate(0)
	if err == nil {
		_, err = s.text.WriteAt([]byte(text), 0)
	}
	if err != nil {
		return fmt.Errorf("hand a transaction to nft: %w", err)
	}
	return nil
}

// answer gives what nft said before the marker. The line before the marker is what it
// says of the marker itself.
func (s *Session) answer(ctx context.Context) ([]string, error) {
	var lines []string
	for {
		select {
		case line, more := <-s.problems:
			if !more {
				said := strings.TrimSpace(strings.Join(lines, "\n"))
				if said == "" {
					return nil, ErrEnded
				}
				return nil, fmt.Errorf("%w: %s", ErrEnded, said)
			}
			if line != marker(s.number) {
				lines = append(lines, line)
				continue
			}
			if n := len(lines); n > 0 {
				lines = lines[:n-1]
			}
			return lines, nil
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("nft -i: %w", ctx.Err()), s.Close())
		}
	}
}

// Done is closed when nft has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Close ends nft and waits until it has ended: its tables are then gone.
func (s *Session) Close() error {
	var err error
	s.close.Do(func() {
		_ = s.input.Close()
		late := time.AfterFunc(closeGrace, func() { _ = syscall.Kill(-s.process.Pid, syscall.SIGKILL) })
		go func() {
			for range s.problems { // whatever it still says must not hold it up
			}
		}()
		<-s.done
		late.Stop()
		err = s.text.Close()
	})
	return err
}

// Owned says whether a table of family inet in the network namespace of the calling
// thread belongs to a socket.
func Owned(table string) (bool, error) {
	const flagsOfTable, owner = 2, 2 // NFTA_TABLE_FLAGS, NFT_TABLE_F_OWNER
	owned := false
	err := dump(listTables, unix.NFPROTO_INET, func() { owned = false }, func(attribute func(kind uint16) string) {
		flags := attribute(flagsOfTable) // four bytes in network order
		owned = owned || attribute(nameOfTable) == table && len(flags) == 4 && flags[3]&owner != 0
	})
	if err != nil {
		return false, fmt.Errorf("list the tables: %w", err)
	}
	return owned, nil
}
