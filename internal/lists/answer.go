package lists

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

	"sluice/internal/addrset"
)

// What a child hands back, and nothing else of what a server sent:
//
//	4 bytes   the length of the head, big endian, at most maxHead
//	head      JSON, see head
//	records   for each element, in the order of the list: its line (4 bytes, big
//	          endian, rising, from 1), 4 or 6, its first and its last address
//
// Who reads it trusts the child with nothing: it may have been taken over by what a
// server sent. So lengths are bounded, ranges checked, and texts cleaned.
const (
	maxHead  = 64 << 10
	maxLines = maxBytes / 2 // a line has a byte and its end
	maxTag   = 1 << 10
)

// question is what a child is asked on its standard input, as JSON.
type question struct {
	URL      string `json:"url"`
	ETag     string `json:"etag,omitempty"`
	Modified string `json:"modified,omitempty"`
}

// head is what comes before the elements.
type head struct {
	Error       string   `json:"error,omitempty"` // nothing else counts then
	NotModified bool     `json:"not-modified,omitempty"`
	ETag        string   `json:"etag,omitempty"`
	Modified    string   `json:"modified,omitempty"`
	Lacks       []string `json:"lacks,omitempty"` // of what should confine the child
}

// element is a range of a list and the line it stands on.
type element struct {
	line  uint32
	value addrset.Range
}

func writeAnswer(w io.Writer, h head, elements []element) error {
	out := bufio.NewWriter(w)
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if len(text) > maxHead {
		if text, err = json.Marshal(head{Error: "its error is too long to be told", Lacks: h.Lacks}); err != nil {
			return err
		}
	}
	_ = binary.Write(out, binary.BigEndian, uint32(len(text))) //nolint:gosec // at most maxHead
	_, _ = out.Write(text)
	for _, e := range elements {
		family := byte(6)
		if e.value.From.Is4() {
			family = 4
		}
		_, _ = out.Write(append(binary.BigEndian.AppendUint32(nil, e.line), family))
		_, _ = out.Write(e.value.From.AsSlice())
		_, _ = out.Write(e.value.To.AsSlice())
	}
	return out.Flush()
}

// readAnswer reads what a child wrote, each element into add.
func readAnswer(r io.Reader, add func(element)) (head, error) {
	in := bufio.NewReader(r)
	var h head
	var size uint32
	if err := binary.Read(in, binary.BigEndian, &size); err != nil || size > maxHead {
		return h, errors.New("the child that asks the list's server gave no answer")
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(in, text); err != nil || json.Unmarshal(text, &h) != nil {
		return h, errors.New("the child that asks the list's server gave an answer that cannot be read")
	}
	h.clean()
	var last uint32
	for {
		e, err := readElement(in)
		if errors.Is(err, io.EOF) {
			return h, nil
		}
		if err == nil && (e.line <= last || e.line > maxLines) {
			err = fmt.Errorf("line %d behind line %d", e.line, last)
		}
		if err != nil {
			return h, fmt.Errorf("the child that asks the list's server gave an element that cannot be: %w", err)
		}
		last = e.line
		add(e)
	}
}

func readElement(in io.Reader) (e element, err error) {
	var front [5]byte
	if _, err := io.ReadFull(in, front[:]); err != nil {
		return e, err // io.EOF before the first byte alone
	}
	e.line = binary.BigEndian.Uint32(front[:])
	size := 16
	switch front[4] {
	case 4:
		size = 4
	case 6:
	default:
		return e, fmt.Errorf("family %d", front[4])
	}
	ends := make([]byte, 2*size)
	if _, err := io.ReadFull(in, ends); err != nil {
		return e, io.ErrUnexpectedEOF
	}
	from, _ := netip.AddrFromSlice(ends[:size])
	to, _ := netip.AddrFromSlice(ends[size:])
	e.value, err = addrset.NewRange(from, to)
	return e, err
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
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return '\ufffd'
		}
		return r
	}, text)
}
