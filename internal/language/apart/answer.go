package apart

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"unicode"

	"sluice/internal/base/addrset"
)

// What the process hands back, and nothing else of what a server sent:
//
//	heads     of progress, any number; then one with the answer. Each is
//	          4 bytes, its length, big endian, at most maxHead, and JSON, see head
//	rows      of each range its tag (4 bytes, big endian), 4 or 6, its first and its
//	          last address
//
// Who reads it trusts the process with nothing: it may have been taken over by what a
// server sent. So lengths are bounded, ranges checked, and texts cleaned.
const (
	maxHead = 64 << 10
	maxTag  = 1 << 10
	maxName = 256
)

// head is what comes before the rows.
type head struct {
	Progress    []int64  `json:"progress,omitempty"` // bytes that have come, and of how many; nothing else counts then
	Error       string   `json:"error,omitempty"`    // nothing else counts then
	NotModified bool     `json:"not-modified,omitempty"`
	Name        string   `json:"name,omitempty"`
	ETag        string   `json:"etag,omitempty"`
	Modified    string   `json:"modified,omitempty"`
	About       About    `json:"about,omitzero"`
	Lacks       []string `json:"lacks,omitempty"` // of what should confine the process
}

func writeHead(w io.Writer, h head) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if len(text) > maxHead {
		if text, err = json.Marshal(head{Error: "its error is too long to report", Lacks: h.Lacks}); err != nil {
			return err
		}
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)) //nolint:gosec // at most maxHead
	return err
}

func writeAnswer(w io.Writer, h head, rows []Row) error {
	out := bufio.NewWriter(w)
	if err := writeHead(out, h); err != nil {
		return err
	}
	for _, r := range rows {
		family := byte(6)
		if r.Range.From.Is4() {
			family = 4
		}
		_, _ = out.Write(append(binary.BigEndian.AppendUint32(nil, r.Tag), family))
		_, _ = out.Write(r.Range.From.AsSlice())
		_, _ = out.Write(r.Range.To.AsSlice())
	}
	return out.Flush()
}

// readAnswer reads what the process wrote, each row into add.
func readAnswer(r io.Reader, progress func(done, total int64), add func(Row) error) (head, error) {
	in := bufio.NewReader(r)
	h, err := readHead(in)
	for ; err == nil && len(h.Progress) > 0; h, err = readHead(in) {
		if progress != nil && len(h.Progress) == 2 {
			progress(h.Progress[0], h.Progress[1])
		}
	}
	if err != nil {
		return h, err
	}
	h.clean()
	for {
		row, err := readRow(in)
		if errors.Is(err, io.EOF) {
			return h, nil
		}
		if err == nil {
			err = add(row)
		}
		if err != nil {
			return h, fmt.Errorf("the download process returned an impossible range: %w", err)
		}
	}
}

func readHead(in io.Reader) (h head, err error) {
	var size uint32
	if err := binary.Read(in, binary.BigEndian, &size); err != nil || size > maxHead {
		return h, errors.New("the download process returned no answer")
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(in, text); err != nil || json.Unmarshal(text, &h) != nil {
		return h, errors.New("the download process returned an answer that cannot be read")
	}
	return h, nil
}

func readRow(in io.Reader) (row Row, err error) {
	var front [5]byte
	if _, err := io.ReadFull(in, front[:]); err != nil {
		return row, err // io.EOF before the first byte alone
	}
	row.Tag = binary.BigEndian.Uint32(front[:])
	size := 16
	switch front[4] {
	case 4:
		size = 4
	case 6:
	default:
		return row, fmt.Errorf("family %d", front[4])
	}
	ends := make([]byte, 2*size)
	if _, err := io.ReadFull(in, ends); err != nil {
		return row, io.ErrUnexpectedEOF
	}
	from, _ := netip.AddrFromSlice(ends[:size])
	to, _ := netip.AddrFromSlice(ends[size:])
	row.Range, err = addrset.NewRange(from, to)
	return row, err
}

// clean takes out of texts what a terminal would obey, and tags that no header
// could hold.
func (h *head) clean() {
	h.Error = printable(h.Error)
	for i := range h.Lacks {
		h.Lacks[i] = printable(h.Lacks[i])
	}
	for _, tag := range []*string{&h.ETag, &h.Modified} {
		if len(*tag) > maxTag || *tag != printable(*tag) || strings.Contains(*tag, "\n") {
			*tag = ""
		}
	}
	for _, name := range []*string{&h.Name, &h.About.Source, &h.About.Licence, &h.About.Attribution} {
		*name = strings.ReplaceAll(printable(*name), "\n", " ")
		*name = strings.ToValidUTF8((*name)[:min(len(*name), maxName)], "")
	}
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return '\ufffd'
		}
		return r
	}, text)
}
