package lists

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"sluice/internal/language/apart"
)

// writer writes the ranges of a list, each on its line: what reads the copy later
// names the same lines as the server's text has.
type writer struct {
	out  *bufio.Writer
	line uint32 // that is being written
	last uint32 // that has a range
}

func newWriter(w io.Writer) *writer { return &writer{out: bufio.NewWriter(w), line: 1} }

// add refuses lines that do not rise, or that no list has.
func (w *writer) add(r apart.Row) error {
	if r.Tag <= w.last || r.Tag > maxLines {
		return fmt.Errorf("line %d after line %d", r.Tag, w.last)
	}
	w.last = r.Tag
	for ; w.line < r.Tag; w.line++ {
		_ = w.out.WriteByte('\n')
	}
	_, err := w.out.WriteString(strings.ReplaceAll(r.Range.String(), " ", ""))
	return err
}

// flush ends the last line, and gives the first error there was.
func (w *writer) flush() error {
	_ = w.out.WriteByte('\n')
	return w.out.Flush()
}
