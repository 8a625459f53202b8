package geo

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"time"
)

// maxUnpacked bounds what a source may unpack to; the largest that is known
// takes 50 MB.
const maxUnpacked = 1 << 30

// Read reads one source into t, whatever its format: it is told by the first
// bytes. name is what errors begin with, followed by the line. What the source
// says of itself is returned.
func Read(r io.Reader, name string, t *Table) (Origin, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	o := originByName(name)
	head, err := b.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return o, fmt.Errorf("%s: %w", name, err)
	}
	if bytes.Equal(head, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(b)
		if err != nil {
			return o, fmt.Errorf("%s: %w", name, err)
		}
		defer func() { _ = z.Close() }()
		if !z.ModTime.IsZero() && o.Date.IsZero() {
			o.Date = z.ModTime.UTC()
		}
		b = bufio.NewReaderSize(&limited{r: z, left: maxUnpacked}, 1<<16)
	}
	before := t.Rows()
	if err := readPlain(b, name, t, &o); err != nil {
		return o, err
	}
	if t.Rows() == before {
		return o, fmt.Errorf("%s: the file has no ranges of countries", name)
	}
	return o, nil
}

func readPlain(b *bufio.Reader, name string, t *Table, o *Origin) error {
	head, err := b.Peek(512)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", name, err)
	}
	head = bytes.TrimPrefix(head, []byte("\ufeff"))
	switch first := bytes.TrimSpace(head); {
	case len(first) == 0:
		return fmt.Errorf("%s: the file is empty", name)
	case bytes.HasPrefix(first, []byte("PK\x03\x04")):
		return fmt.Errorf("%s: the file is a zip archive\nhint: unpack it and give the file inside", name)
	case first[0] == '<':
		return fmt.Errorf("%s: the file is a web page, not country data", name)
	case bytes.IndexByte(head, 0) >= 0:
		return readMMDB(b, name, t, o)
	case isDelegated(head):
		return readDelegated(b, name, t, o)
	default:
		return readCSV(b, name, t)
	}
}

// limited is an io.LimitedReader that says so when the limit is passed.
type limited struct {
	r    io.Reader
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errors.New("unpacks to more than 1 GiB")
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

// maxLine bounds a line of a source; all formats have short ones.
const maxLine = 1 << 16

// lines calls f for each line that is not blank or a comment.
func lines(r io.Reader, name string, f func(line int, text string) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 1<<12), maxLine)
	line := 0
	for s.Scan() {
		line++
		text := s.Text()
		if line == 1 {
			text = strings.TrimPrefix(text, "\ufeff")
		}
		text = strings.TrimSpace(text)
		if text == "" || text[0] == '#' {
			continue
		}
		if err := f(line, text); err != nil {
			return fmt.Errorf("%s:%d: %w", name, line, err)
		}
	}
	if err := s.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("%s:%d: the line has more than %d bytes", name, line+1, maxLine)
	} else if err != nil {
		return fmt.Errorf("%s:%d: %w", name, line+1, err)
	}
	return nil
}

// place is a row's addresses as a Table wants them: IPv4-mapped ones are IPv4.
func place(from, to netip.Addr) (netip.Addr, netip.Addr) {
	if from.Is4In6() && to.Is4In6() {
		return from.Unmap(), to.Unmap()
	}
	return from, to
}

// noCountry reports whether a source writes code for addresses of no country.
func noCountry(code string) bool { return code == "" || code == "-" || code == "ZZ" }

var dateInName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(20\d\d)-?(0[1-9]|1[0-2])(?:-?(0[1-9]|[12]\d|3[01]))?`)
})

// originByName says what a file's name reports it.
func originByName(name string) Origin {
	base := name[strings.LastIndexAny(name, `/\`)+1:]
	o := Origin{From: []string{name}, Source: base}
	if strings.HasPrefix(base, "dbip-") {
		o.Source, o.Licence = "DB-IP Lite", "CC-BY-4.0"
		o.Attribution = "IP Geolocation by DB-IP (https://db-ip.com)"
	}
	if m := dateInName().FindStringSubmatch(base); m != nil {
		day := m[3]
		if day == "" {
			day = "01"
		}
		if d, err := time.Parse("20060102", m[1]+m[2]+day); err == nil {
			o.Date = d
		}
	}
	return o
}
