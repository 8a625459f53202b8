package addrset

import (
	"encoding/binary"
	"errors"
	"io"
)

// errBinary says that MarshalBinary did not write something.
var errBinary = errors.New("addrset: not a set in binary form")

// MarshalBinary writes the set as the number of ranges of each family and then,
// from first to last, the gap before each range and its length, all as varints
// (of IPv6, the upper and the lower half). It never fails.
func (s Set) MarshalBinary() ([]byte, error) {
	out := make([]byte, 0, 2*binary.MaxVarintLen32+5*len(s.v4)+12*len(s.v6))
	out = binary.AppendUvarint(out, uint64(len(s.v4)))
	out = binary.AppendUvarint(out, uint64(len(s.v6)))
	var at4 key4
	for _, r := range s.v4 {
		out = binary.AppendUvarint(out, uint64(r.from-at4))
		out = binary.AppendUvarint(out, uint64(r.to-r.from))
		at4 = r.to
	}
	var at6 key6
	for _, r := range s.v6 {
		out = append6(out, r.from.Sub(at6))
		out = append6(out, r.to.Sub(r.from))
		at6 = r.to
	}
	return out, nil
}

func append6(out []byte, k key6) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(out, k.Hi), k.Lo)
}

// WriteRanges writes the first and the last address of each minimal range, IPv4
// first, in network order: 8 bytes for a range of IPv4, 32 for one of IPv6.
func (s Set) WriteRanges(w io.Writer) error {
	buf := make([]byte, 0, 16<<10)
	var err error
	flush := func(room int) {
		if cap(buf)-len(buf) < room && err == nil {
			_, err = w.Write(buf)
			buf = buf[:0]
		}
	}
	for _, r := range s.v4 {
		flush(8)
		buf = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(buf, uint32(r.from)), uint32(r.to))
	}
	for _, r := range s.v6 {
		flush(32)
		for _, half := range [...]uint64{r.from.Hi, r.from.Lo, r.to.Hi, r.to.Lo} {
			buf = binary.BigEndian.AppendUint64(buf, half)
		}
	}
	flush(cap(buf) + 1)
	return err
}

// UnmarshalBinary reads what MarshalBinary wrote, and nothing else: the ranges
// have to be minimal and nothing may follow.
func (s *Set) UnmarshalBinary(data []byte) error {
	in := reader{data: data}
	n4, n6 := in.next(), in.next()
	if in.failed || n4 > uint64(len(data)) || n6 > uint64(len(data)) {
		return errBinary
	}
	var out Set
	if n4 > 0 {
		out.v4 = make([]span[key4], 0, n4)
	}
	var at4 uint64
	for range n4 {
		from := at4 + in.next()
		to := from + in.next()
		if in.failed || to < from || to > 1<<32-1 {
			return errBinary
		}
		out.v4 = append(out.v4, span[key4]{key4(from), key4(to)})
		at4 = to
	}
	if n6 > 0 {
		out.v6 = make([]span[key6], 0, n6)
	}
	var at6 key6
	for range n6 {
		from := at6.Add(key6{in.next(), in.next()})
		to := from.Add(key6{in.next(), in.next()})
		if in.failed || from.Compare(at6) < 0 || to.Compare(from) < 0 {
			return errBinary
		}
		out.v6 = append(out.v6, span[key6]{from, to})
		at6 = to
	}
	if len(in.data) > 0 || !isMinimal(out.v4) || !isMinimal(out.v6) {
		return errBinary
	}
	*s = out
	return nil
}

type reader struct {
	data   []byte
	failed bool
}

func (r *reader) next() uint64 {
	v, n := binary.Uvarint(r.data)
	if n <= 0 {
		r.failed = true
		return 0
	}
	r.data = r.data[n:]
	return v
}
