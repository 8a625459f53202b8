// Package nft runs the nft program: it loads transactions, tries them without
// loading, and lists tables as JSON (libnftables-json(5)). It works in the
// network namespace of the calling thread, so a goroutine that has entered one
// must be locked to its thread. The nftables backend and its live trace call it to
// change a ruleset, others to read one.
package nft

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sluice/internal/base/tool"
	"sluice/internal/system/kernel/process"
)

// Patience bounds one run of nft where the caller's context has no deadline: a
// million elements take less than a tenth of it on a slow machine.
const Patience = 5 * time.Minute

// ErrNotThere says that the listed object does not exist.
var ErrNotThere = errors.New("no such object in the ruleset")

// ErrChanged says that the ruleset changed between nft's look at it and its
// transaction, of which nothing was done; asking again helps.
var ErrChanged = errors.New("the ruleset changed meanwhile")

// ErrTooLarge says that a transaction does not fit into what the kernel lets a
// socket send at once, of which nothing was done.
var ErrTooLarge = errors.New("the transaction is larger than the socket's send buffer (net.core.wmem_max)")

// Run loads text as one transaction: the kernel takes all of it or nothing. The
// error is an *Error where nft or the kernel refused it.
func Run(ctx context.Context, text string) error {
	return Here().Count(Generation, func() error {
		_, err := run(ctx, text, "-f", "-")
		return err
	})
}

// Check asks nft and the kernel whether they would take text as it is. It needs
// the same rights as Run and changes nothing. Objects that text refers to have
// to be there.
func Check(ctx context.Context, text string) error {
	_, err := run(ctx, text, "-c", "-f", "-")
	return err
}

// List gives the JSON of "nft list" with the given words, such as "table",
// "inet", "sluice". Every value that has a number is given by it, so that the
// answer depends neither on the machine's name databases nor on nft's version.
func List(ctx context.Context, words ...string) ([]byte, error) {
	return run(ctx, "", append([]string{"-n", "-j", "list"}, words...)...)
}

// ListTable is List of a table whose name nft takes for a word of its own behind "list",
// such as "sets".
func ListTable(ctx context.Context, family, name string) ([]byte, error) {
	command, err := json.Marshal(map[string]any{"nftables": []any{map[string]any{"list": map[string]any{"table": map[string]string{"family": family, "name": name}}}}})
	if err != nil {
		return nil, err
	}
	return run(ctx, string(command), "-n", "-j", "-f", "-")
}

// ListTerse is List without the elements of named sets.
func ListTerse(ctx context.Context, words ...string) ([]byte, error) {
	return run(ctx, "", append([]string{"-n", "-j", "-t", "list"}, words...)...)
}

// ListText is List as text, for what the JSON of some versions leaves out.
func ListText(ctx context.Context, words ...string) ([]byte, error) {
	return run(ctx, "", append([]string{"-n", "-t", "list"}, words...)...)
}

// Version is what "nft --version" prints; only for people to read.
func Version(ctx context.Context) (string, error) {
	out, err := run(ctx, "", "--version")
	return strings.TrimSpace(string(out)), err
}

// Installed names the files that decide what nft can do, its program and its
// library where that is apart, so that a caller can see them change.
func Installed() []string {
	var files []string
	if program, err := tool.Path("nft"); err == nil {
		files = append(files, program)
	}
	// The folders themselves are not listed: some have thousands of files.
	apart, _ := filepath.Glob("/usr/lib/*-linux-*") // it cannot be malformed
	for _, dir := range append(apart, "/usr/lib64", "/usr/lib", "/usr/local/lib") {
		library := filepath.Join(dir, "libnftables.so.1")
		if _, err := os.Stat(library); err == nil {
			files = append(files, library)
		}
	}
	return files
}

// path is where nft is.
func path() (string, error) {
	found, err := tool.Path("nft")
	if err != nil {
		return "", fmt.Errorf("%w\n  hint: install the package nftables", err)
	}
	return found, nil
}

func run(ctx context.Context, input string, args ...string) ([]byte, error) {
	program, err := path()
	if err != nil {
		return nil, err
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, Patience)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, program, args...)
	// A group of its own: a Ctrl-C is for the caller, who may be half way.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// It lists times as those of its time zone.
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	cmd.Stdin = strings.NewReader(input)
	cmd.ExtraFiles = process.HeldFiles(ctx)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err = tool.Run(cmd)
	if err == nil {
		return out.Bytes(), nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("nft %s: %w", strings.Join(args, " "), ctx.Err())
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return nil, fmt.Errorf("nft %s: %w", strings.Join(args, " "), err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return nil, fmt.Errorf("nft %s was killed (%s), by somebody or for lack of memory", strings.Join(args, " "), status.Signal())
	}
	return nil, parseError(args, input, problems.String())
}

// Error is what nft or the kernel has against a text.
type Error struct {
	Problems []Problem
	cause    error
}

// Problem is one complaint.
type Problem struct {
	Line, Column int    // of the text, from 1; 0 when nft names none
	Message      string // "syntax error, unexpected newline"
	Source       string // the line of the text
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("nft: ")
	for i, p := range e.Problems {
		if i == 5 {
			fmt.Fprintf(&b, "\n  and %d more", len(e.Problems)-i)
			break
		}
		if i > 0 {
			b.WriteString("\n  ")
		}
		if p.Line > 0 {
			fmt.Fprintf(&b, "line %d column %d: ", p.Line, p.Column)
		}
		b.WriteString(p.Message)
		if source := strings.TrimSpace(p.Source); source != "" {
			if len(source) > 200 {
				source = source[:200] + "…"
			}
			b.WriteString(": " + source)
		}
	}
	if errors.Is(e.cause, ErrTooLarge) {
		fmt.Fprintf(&b, "\n  %v\n  hint: raise that limit on the machine; a process in a container may not go over it", e.cause)
	}
	return b.String()
}

// Unwrap gives ErrNotThere, ErrChanged, ErrTooLarge, fs.ErrPermission or nil.
func (e *Error) Unwrap() error { return e.cause }

// causes are the kernel's errors that callers tell apart, as nft words them.
var causes = []struct {
	text  string
	cause error
}{
	{"No such file or directory", ErrNotThere},
	{"Interrupted system call", ErrChanged},
	{"Resource temporarily unavailable", ErrChanged},
	{"Operation not permitted", fs.ErrPermission},
	{"Message too long", ErrTooLarge},
}

func parseError(args []string, input, problems string) error {
	e := &Error{}
	lines := strings.Split(input, "\n")
	for text := range strings.Lines(problems) {
		if p, ok := parseProblem(strings.TrimRight(text, "\n")); ok {
			if p.Line > 0 && p.Line <= len(lines) {
				p.Source = lines[p.Line-1]
			}
			e.Problems = append(e.Problems, p)
		}
	}
	if len(e.Problems) == 0 {
		message := strings.TrimSpace(problems)
		if message == "" {
			message = "failed without a word: nft " + strings.Join(args, " ")
		}
		e.Problems = []Problem{{Message: message}}
	}
	for _, c := range causes {
		for _, p := range e.Problems {
			if strings.Contains(p.Message, c.text) && e.cause == nil {
				e.cause = c.cause
			}
		}
	}
	return e
}

// parseProblem reads "/dev/stdin:4:11-12: Error: message", with or without
// place.
func parseProblem(line string) (Problem, bool) {
	place, message, found := strings.Cut(line, "Error: ")
	if !found {
		place, message, found = strings.Cut(line, "error: ")
	}
	if !found {
		return Problem{}, false
	}
	p := Problem{Message: message}
	fields := strings.Split(strings.TrimSuffix(strings.TrimSpace(place), ":"), ":")
	if n := len(fields); n >= 2 {
		var line, column int
		if _, err := fmt.Sscanf(fields[n-2]+":"+fields[n-1], "%d:%d", &line, &column); err == nil {
			p.Line, p.Column = line, column
		}
	}
	return p, true
}
