package lists

import (
	"bufio"
	"io"
	"strings"

	"sluice/internal/addrset"
)

type addrRange = addrset.Range

// writer writes the elements of a list, each on its line: what reads the copy later
// names the same lines as the server's text has.
type writer struct {
	out  *bufio.Writer
	line uint32
}

func newWriter(w io.Writer) *writer { return &writer{out: bufio.NewWriter(w), line: 1} }

func (w *writer) add(e element) {
	for ; w.line < e.line; w.line++ {
		_ = w.out.WriteByte('\n')
	}
	_, _ = w.out.WriteString(strings.ReplaceAll(e.value.String(), " ", ""))
}

// flush ends the last line, and gives the first error there was.
func (w *writer) flush() error {
	_ = w.out.WriteByte('\n')
	return w.out.Flush()
}
