package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gdamore/tcell/v3/vt"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// scriptScreen runs a program on a terminal of 80 columns and 24 rows, and does the steps of
// a file, one a line:
//
//	shows REGEXP      waits until the screen has it, of which each row is a line
//	lacks REGEXP      waits until it has not
//	types "TEXT"      presses keys, written as a string of Go
//	size COLUMNS ROWS makes the terminal another size
//	connects ADDRESS  as the command of that name
//	blocked ADDRESS   as "! connects"
//	signal TERM       sends a signal
//	ends STATUS       waits for the end, and whether the terminal is as it was before
func scriptScreen(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: screen STEPS PROGRAM ARG...")
	}
	s, err := openScreen(80, 24)
	ts.Check(err)
	defer s.close()
	s.program = exec.Command(args[1], args[2:]...)
	s.program.Dir = ts.Getenv("WORK")
	for _, name := range []string{"PATH", "HOME", "NO_COLOR", "SLUICE_STATE_DIR", "SLUICE_SOCKET", documentVariable} {
		s.program.Env = append(s.program.Env, name+"="+ts.Getenv(name))
	}
	s.program.Env = append(s.program.Env, "TERM=xterm", "LANG=C.UTF-8")
	s.program.Stdin, s.program.Stdout, s.program.Stderr = s.slave, s.slave, s.slave
	s.program.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	ts.Check(s.program.Start())
	go s.follow()
	ended := make(chan error, 1)
	go func() { ended <- s.program.Wait() }()
	defer func() { _ = s.program.Process.Kill() }()
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		step, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		var err error
		switch step {
		case "shows", "lacks":
			err = s.waits(regexp.MustCompile("(?m)"+rest), step == "shows")
		case "types":
			var keys string
			if keys, err = strconv.Unquote(rest); err == nil {
				_, err = s.master.WriteString(keys)
			}
		case "size":
			var columns, rows int
			if _, err = fmt.Sscanf(rest, "%d %d", &columns, &rows); err == nil {
				err = s.resize(columns, rows)
			}
		case "connects", "blocked":
			scriptConnects(ts, step == "blocked", []string{rest})
		case "signal":
			err = s.program.Process.Signal(unix.SignalNum("SIG" + rest))
		case "ends":
			err = s.ends(ended, rest)
		default:
			err = errors.New("no such step")
		}
		if err != nil {
			ts.Fatalf("%s: %v\n%s", strings.TrimSpace(line), err, s.text())
		}
	}
	ts.Logf("[screen, %d bytes written]\n%s", s.written, s.text())
}

// screen is a pseudo terminal with what an emulator makes of it.
type screen struct {
	master, slave *os.File
	program       *exec.Cmd
	before        unix.Termios

	mutex         sync.Mutex
	emulator      vt.MockTerm
	columns, rows int
	written       int
	last          []byte
}

func openScreen(columns, rows int) (s *screen, err error) {
	s = &screen{emulator: vt.NewMockTerm(vt.MockOptSize{X: vt.Col(columns), Y: vt.Row(rows)})}
	if s.master, err = os.OpenFile("/dev/ptmx", os.O_RDWR, 0); err != nil {
		return nil, err
	}
	number, err := unix.IoctlGetInt(int(s.master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(s.master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		s.slave, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, errors.Join(err, s.master.Close())
	}
	now, err := unix.IoctlGetTermios(int(s.slave.Fd()), unix.TCGETS)
	if err == nil {
		s.before = *now
		err = errors.Join(s.emulator.Start(), s.resize(columns, rows))
	}
	return s, err
}

func (s *screen) close() {
	_ = s.slave.Close()
	_ = s.master.Close()
}

func (s *screen) resize(columns, rows int) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.columns, s.rows = columns, rows
	s.emulator.SetSize(vt.Coord{X: vt.Col(columns), Y: vt.Row(rows)})
	return unix.IoctlSetWinsize(int(s.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(columns)}) //nolint:gosec // small
}

// follow takes what is written to the terminal until it is closed.
func (s *screen) follow() {
	part := make([]byte, 1<<16)
	for {
		n, err := s.master.Read(part)
		if err != nil {
			return
		}
		s.mutex.Lock()
		_, _ = s.emulator.Write(part[:n])
		s.written += n
		s.last = append(s.last, part[:n]...)
		s.mutex.Unlock()
	}
}

// text is what stands on the screen.
func (s *screen) text() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var b strings.Builder
	for y := range s.rows {
		line := ""
		for x := range s.columns {
			c := s.emulator.GetCell(vt.Coord{X: vt.Col(x), Y: vt.Row(y)})
			if line += c.C; c.C == "" {
				line += " "
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

func (s *screen) waits(re *regexp.Regexp, shown bool) error {
	for range 3000 {
		if re.MatchString(s.text()) == shown {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("waited in vain")
}

func (s *screen) ends(ended <-chan error, status string) error {
	select {
	case <-ended:
	case <-time.After(time.Minute):
		return errors.New("it does not end")
	}
	if got := strconv.Itoa(s.program.ProcessState.ExitCode()); got != status {
		return fmt.Errorf("exit status %s, want %s", got, status)
	}
	now, err := unix.IoctlGetTermios(int(s.slave.Fd()), unix.TCGETS)
	if err == nil && *now != s.before {
		err = fmt.Errorf("the terminal is %+v, and was %+v", *now, s.before)
	}
	for range 3000 { // what was written last may be under way
		s.mutex.Lock()
		text := string(s.last)
		s.mutex.Unlock()
		if strings.Contains(text, "\x1b[?1049l") && strings.Contains(text, "\x1b[?25h") { // its own screen, and the cursor
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.Join(err, errors.New("the terminal does not show what was there before"))
}
