package demo

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"golang.org/x/term"
)

// Styles of text, as ANSI calls them.
const (
	bold      = "1"
	faint     = "2"
	underline = "4"
	green     = "32"
	red       = "31"
	cyan      = "36"
)

// report prints what happens and remembers what was not as expected.
type report struct {
	out     io.Writer
	colours bool
	record  strings.Builder // what was printed, with its styles
	aside   bool            // what is printed is not for the record
	checks  int
	wrong   []string
	from    time.Time
}

func newReport(out *os.File) *report {
	return &report{
		out: out, from: time.Now(), wrong: []string{},
		colours: os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(out.Fd())),
	}
}

func (r *report) paint(style, text string) string {
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

var styled = regexp.MustCompile("\x1b\\[[0-9;]*m")

func (r *report) printf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !r.aside {
		r.record.WriteString(text)
	}
	if !r.colours {
		text = styled.ReplaceAllString(text, "")
	}
	fmt.Fprint(r.out, text)
}

// title begins a part of the demo.
func (r *report) title(format string, args ...any) {
	r.printf("\n%s\n", r.paint(bold, fmt.Sprintf(format, args...)))
}

func (r *report) say(format string, args ...any) {
	r.printf("  %s\n", fmt.Sprintf(format, args...))
}

// leaveOut begins or ends what a picture needs not show, since it repeats what is
// above it; there are dots in the record instead.
func (r *report) leaveOut(on bool) {
	if on && !r.aside {
		r.record.WriteString("  ...\n")
	}
	r.aside = on
}

// quote shows a command and what it printed, of which the first line says the most.
func (r *report) quote(command, output string) {
	words := wrap("$ " + command)
	for i, piece := range words {
		if i < len(words)-1 {
			piece += " \\"
		}
		r.printf("  %s\n", r.paint(cyan, piece))
	}
	first, rest, _ := strings.Cut(strings.TrimRight(output, "\n"), "\n")
	if first != "" {
		r.say("%s", strings.Join(wrap(first), "\n  "))
	}
	for line := range strings.Lines(rest) {
		for _, piece := range wrap(strings.TrimRight(line, "\n")) {
			r.printf("  %s\n", r.paint(faint, piece))
		}
	}
}

// wrap breaks a line at blanks, so that no piece is wider than the tables.
func wrap(line string) (pieces []string) {
	const width = 86
	for len(line) > width {
		at := strings.LastIndexByte(line[:width], ' ')
		if at <= 0 || strings.TrimSpace(line[:at]) == "" {
			break
		}
		pieces = append(pieces, line[:at])
		line = "    " + line[at+1:]
	}
	return append(pieces, line)
}

func (r *report) head() {
	r.printf("  %s\n", r.paint(underline, row("tried", "expected", "seen")+"   "))
}

// check is a row of a table: what was tried, expected and seen.
func (r *report) check(what, expected, seen string) {
	r.checks++
	mark := r.paint(green, "ok")
	if expected != seen {
		mark = r.paint(red, "DIFFERS")
		r.wrong = append(r.wrong, strings.TrimSpace(what)+": expected "+expected+", seen "+seen)
	}
	r.printf("  %s %s\n", row(what, expected, seen), mark)
}

func row(what, expected, seen string) string {
	return fmt.Sprintf("%-52s %-13s %-13s", what, expected, seen)
}

// close prints the result.
func (r *report) close() Result {
	took := time.Since(r.from).Seconds()
	if len(r.wrong) > 0 {
		r.printf("\n%s\n", r.paint(red, fmt.Sprintf("%d of %d checks differ (%.0f s):", len(r.wrong), r.checks, took)))
		for _, w := range r.wrong {
			r.printf("  %s\n", w)
		}
	} else {
		r.printf("\n%s\n", r.paint(green, fmt.Sprintf("all %d checks as expected, in %.0f s", r.checks, took)))
	}
	return Result{r.checks, r.wrong, took}
}
