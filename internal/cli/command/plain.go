package command

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"sluice/internal/base/regular"
	"sluice/internal/language/source"
)

// plainWriter writes text of which nothing can steer a terminal, wherever it is from:
// names of files and interfaces, answers of servers, comments of other tools' rules.
// Control characters and those that turn the direction of writing come out as they are
// written in JSON, \u001b, so that JSON stays what it is. What Paint adds passes
// where there is a terminal.
type plainWriter struct {
	io.Writer
	styled bool
}

func newPlainWriter(w io.Writer) *plainWriter { return &plainWriter{w, IsTerminal(w)} }

func (p *plainWriter) Write(text []byte) (int, error) {
	if _, err := p.Writer.Write(plainText(text, p.styled)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// styles are all that Paint is asked for.
var styles = []string{"\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m", "\x1b[1;31m", "\x1b[1;32m", "\x1b[1;33m", "\x1b[1;36m"}

// plainText is text without what steers a terminal.
func plainText(text []byte, styled bool) []byte {
	var out []byte // nil as long as nothing was to be changed
	from := 0
	for at := 0; at < len(text); {
		r, size := rune(text[at]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(text[at:])
		}
		if !steers(r, size) {
			at += size
			continue
		}
		if n := styleAt(text[at:]); styled && n > 0 {
			at += n
			continue
		}
		out = append(out, text[from:at]...)
		if r == utf8.RuneError {
			r = rune(text[at]) // a byte that is no text, and may be a control character to an old terminal
		}
		out = fmt.Appendf(out, `\u%04x`, r)
		at += size
		from = at
	}
	if from == 0 {
		return text
	}
	return append(out, text[from:]...)
}

func steers(r rune, size int) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x20 || r >= 0x7f && r < 0xa0:
		return true
	case r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x200e || r == 0x200f || r == 0x061c:
		return true // bidirectional controls: a name would read as another one
	}
	return r == utf8.RuneError && size == 1
}

func styleAt(text []byte) int {
	for _, s := range styles {
		if bytes.HasPrefix(text, []byte(s)) {
			return len(s)
		}
	}
	return 0
}

// Held keeps what is written to it, painted as it would be for To.
type Held struct {
	bytes.Buffer
	To io.Writer
}

// Bare is what a writer writes to in the end, for what draws on a terminal and for
// what must come out byte by byte.
func Bare(w io.Writer) io.Writer {
	for {
		switch inner := w.(type) {
		case *counted:
			w = inner.Writer
		case *plainWriter:
			w = inner.Writer
		case *Held:
			w = inner.To
		default:
			return w
		}
	}
}

// Exact is a writer for the text of a file: byte by byte into another file, plain to a
// terminal.
func Exact(w io.Writer) io.Writer {
	if IsTerminal(w) {
		return w
	}
	if c, is := w.(*counted); is {
		return &exactWriter{c, Bare(w)}
	}
	return Bare(w)
}

// exactWriter writes as it is what counts as printed anyway.
type exactWriter struct {
	*counted
	to io.Writer
}

func (e *exactWriter) Write(text []byte) (int, error) {
	n, err := e.to.Write(text)
	e.bytes += n
	return n, err
}

// PlainName is a name that stands on a line of its own kind: without the ends of
// lines that a name may have.
func PlainName(name string) string {
	return strings.NewReplacer("\n", `\u000a`, "\t", `\u0009`).Replace(name)
}

// Plain is text that stands on one line of a screen, whatever it is: none of it steers a
// terminal.
func Plain(text string) string { return PlainName(string(plainText([]byte(text), false))) }

// ReadFile reads a file that a command line names, of at most a GiB.
func ReadFile(name string) ([]byte, error) {
	text, err := regular.Read(name, 1<<30)
	if err != nil {
		return nil, source.ReadError(name, err)
	}
	return text, nil
}
