package geo

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"sluice/internal/base/addrset"
)

// The compact form of a database:
//
//	magic      11 bytes, the last digits its version
//	header     length (4 bytes, little endian) and JSON, see fileHeader
//	IPv4 IPv6  one section each, compressed with DEFLATE
//	checksum   SHA-256 of all that precedes
//
// A section holds its ranges in order as three columns, since like compresses
// best beside like: the country of each (an index into the header's list, as a
// varint), the gap to the range before, the size (both as num.go says).
const magic = "sluice-geo1"

// maxSection bounds what a section may unpack to; a million ranges take 5 MB.
const maxSection = 1 << 28

// MaxFile bounds the file of a database, in bytes.
const MaxFile = 1 << 28

type fileHeader struct {
	Origin
	Overlaps  int          `json:"overlaps"`
	Countries []fileCounts `json:"countries"`
	Sections  [2]section   `json:"sections"`
}

type fileCounts struct {
	Code string `json:"code"`
	Counts
}

// section says how long the parts of a section are: the rows, its bytes in the
// file, and its three columns unpacked.
type section struct {
	Rows    int    `json:"rows"`
	Packed  int    `json:"packed"`
	Columns [3]int `json:"columns"`
}

// Encode returns the table in its compact form. The same rows and origin give
// the same bytes.
func (t *Table) Encode(o Origin) ([]byte, error) {
	if t.Rows() == 0 {
		return nil, errors.New("the data have no ranges")
	}
	v4, over4 := flatten(t.v4)
	v6, over6 := flatten(t.v6)
	t.Overlaps = t.within + over4 + over6
	codes, number := t.rank(v4, v6)

	h := fileHeader{Origin: o, Overlaps: t.Overlaps}
	sets := make([]addrset.Builder, len(codes))
	var body bytes.Buffer
	for i, rows := range [2][]row{v4, v6} {
		columns := encodeColumns(rows, number)
		packed, err := pack(columns)
		if err != nil {
			return nil, err
		}
		body.Write(packed)
		h.Sections[i] = section{len(rows), len(packed), [3]int{len(columns[0]), len(columns[1]), len(columns[2])}}
		for _, r := range rows {
			sets[number[r.code]].AddRange(addrset.Range{From: r.from.Addr(i == 0), To: r.to.Addr(i == 0)})
		}
	}
	for i, code := range codes {
		h.Countries = append(h.Countries, fileCounts{code, CountsOf(sets[i].Set())})
	}
	header, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	out := append([]byte(magic), binary.LittleEndian.AppendUint32(nil, uint32(len(header)))...)
	out = append(append(out, header...), body.Bytes()...)
	sum := sha256.Sum256(out)
	return append(out, sum[:]...), nil
}

func encodeColumns(rows []row, number []uint16) (columns [3][]byte) {
	var next num
	for _, r := range rows {
		columns[0] = binary.AppendUvarint(columns[0], uint64(number[r.code]))
		columns[1] = appendNum(columns[1], r.from.Sub(next))
		next = r.to.Next()
		columns[2] = appendNum(columns[2], next.Sub(r.from))
	}
	return columns
}

func pack(columns [3][]byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestCompression)
	if err != nil {
		return nil, err
	}
	for _, c := range columns {
		if _, err := w.Write(c); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// file is a database in its compact form, its header read and its checksum
// verified.
type file struct {
	header fileHeader
	packed [2][]byte
	sum    [sha256.Size]byte
}

// errForeign is said of data that are not in the compact form at all.
var errForeign = errors.New("not country data of this version of sluice")

func decodeFile(data []byte) (*file, error) {
	if !bytes.HasPrefix(data, []byte(magic)) {
		return nil, errForeign
	}
	if len(data) < len(magic)+4+sha256.Size {
		return nil, errors.New("country data are truncated")
	}
	rest, sum := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	got := sha256.Sum256(rest)
	if !bytes.Equal(got[:], sum) {
		return nil, errors.New("country data are damaged: their checksum is wrong")
	}
	rest = rest[len(magic):]
	length := uint64(binary.LittleEndian.Uint32(rest))
	rest = rest[4:]
	if length > uint64(len(rest)) {
		return nil, errors.New("country data are damaged: the header is longer than the file")
	}
	f := file{sum: got}
	if err := json.Unmarshal(rest[:length], &f.header); err != nil {
		return nil, fmt.Errorf("country data are damaged: %w", err)
	}
	rest = rest[length:]
	for i, s := range f.header.Sections {
		if s.Packed < 0 || s.Packed > len(rest) {
			return nil, errors.New("country data are damaged: a section is longer than the file")
		}
		f.packed[i], rest = rest[:s.Packed], rest[s.Packed:]
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("country data are damaged: %d extra bytes", len(rest))
	}
	return &f, nil
}

// each calls f for every range of a family in order until it returns false. The
// country is an index into the header's list.
func (f *file) each(is4 bool, yield func(from, to num, country int) bool) error {
	i := 1
	if is4 {
		i = 0
	}
	s := f.header.Sections[i]
	columns, err := unpack(f.packed[i], s.Columns)
	if err != nil {
		return fmt.Errorf("country data are damaged: %w", err)
	}
	err = eachRow(columns, s.Rows, len(f.header.Countries), is4, yield)
	if err != nil {
		return fmt.Errorf("country data are damaged: %w", err)
	}
	return nil
}

func eachRow(columns [3][]byte, rows, countries int, is4 bool, yield func(from, to num, country int) bool) error {
	var next num
	for i := range rows {
		country, n := binary.Uvarint(columns[0])
		if n <= 0 || country >= uint64(countries) {
			return errors.New("a range has no country")
		}
		columns[0] = columns[0][n:]
		gap, short1 := smallNum(columns[1])
		if columns[1] = columns[1][short1:]; short1 == 0 {
			var err error
			if gap, columns[1], err = takeNum(columns[1]); err != nil {
				return err
			}
		}
		size, short2 := smallNum(columns[2])
		if columns[2] = columns[2][short2:]; short2 == 0 {
			var err error
			if size, columns[2], err = takeNum(columns[2]); err != nil {
				return err
			}
		}
		from := next.Add(gap)
		to := from.Add(size).Prev()
		if from.Less(next) || to.Less(from) || addrset.LastNumber(is4).Less(to) || i > 0 && next == (num{}) {
			return errors.New("ranges are out of order")
		}
		next = to.Next()
		if !yield(from, to, int(country)) {
			return nil
		}
	}
	for _, c := range columns {
		if len(c) > 0 {
			return errors.New("a column is too long")
		}
	}
	return nil
}

func unpack(packed []byte, lengths [3]int) (columns [3][]byte, err error) {
	total := 0
	for _, n := range lengths {
		if n < 0 || n > maxSection-total {
			return columns, errors.New("a column has an impossible length")
		}
		total += n
	}
	// DEFLATE does not shrink to less than a thousandth: lengths that are lies
	// take no memory.
	if total > 1100*len(packed) {
		return columns, errors.New("a section is too short for its columns")
	}
	var buf bytes.Buffer
	buf.Grow(total + bytes.MinRead)
	if _, err := io.Copy(&buf, io.LimitReader(flate.NewReader(bytes.NewReader(packed)), int64(total)+1)); err != nil {
		return columns, err
	}
	all := buf.Bytes()
	if len(all) != total {
		return columns, fmt.Errorf("a section unpacks to %d bytes instead of %d", len(all), total)
	}
	for i, n := range lengths {
		columns[i], all = slices.Clip(all[:n]), all[n:]
	}
	return columns, nil
}
