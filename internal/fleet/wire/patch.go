package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/klauspost/compress/zstd"

	"sluice/internal/base/addrset"
)

// PatchType is the media type of a blob that is a patch, and ListPatchType that of a patch of
// a list, which who asks has to accept.
const (
	PatchType     = "application/vnd.sluice.patch"
	ListPatchType = "application/vnd.sluice.list-patch"
)

// patchWindow is what a patch may look back over, which both sides hold in memory.
const patchWindow = 32 << 20

// Patch says what makes to of from: a frame of zstd, whose dictionary is from. It takes
// about three times the larger of the two in memory.
func Patch(from, to []byte) ([]byte, error) {
	window := 1 << 20
	for window < len(from)+len(to) && window < patchWindow {
		window <<= 1
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderDictRaw(0, from), zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
	if err != nil {
		return nil, err
	}
	defer enc.Close()
	return enc.EncodeAll(to, nil), nil
}

// Unpatch makes of from what Patch was given, of at most so many bytes.
func Unpatch(patch, from []byte, most int64) ([]byte, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderDictRaw(0, from), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(most)), zstd.WithDecoderMaxWindow(patchWindow))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	return dec.DecodeAll(patch, nil)
}

// ListPatch says what makes the list to of the list from; nil where one of them is no list of
// prefixes in order, as [addrset.Set.Lines] writes it. Compressed by zstd are: how many lines go,
// and of each how many stay before it; how many come; the length of each prefix, those of IPv6
// one more than 32 higher; and how far each is behind the one before it, counted in prefixes of
// its length. All but the lengths, which are bytes, are numbers of seven bits a byte, the lowest
// first.
func ListPatch(from, to []byte) ([]byte, error) {
	old, is := listOf(from)
	next, are := listOf(to)
	if !is || !are {
		return nil, nil
	}
	var gone []byte
	var added []netip.Prefix
	left, kept := 0, 0
	for len(old)+len(next) > 0 {
		switch {
		case len(next) == 0 || len(old) > 0 && comparePrefixes(old[0], next[0]) < 0:
			gone, kept, left = binary.AppendUvarint(gone, uint64(kept)), 0, left+1 //nolint:gosec // of a text
			old = old[1:]
		case len(old) == 0 || comparePrefixes(old[0], next[0]) > 0:
			added, next = append(added, next[0]), next[1:]
		default:
			old, next, kept = old[1:], next[1:], kept+1
		}
	}
	out := append(binary.AppendUvarint(nil, uint64(left)), gone...) //nolint:gosec // the same
	out = binary.AppendUvarint(out, uint64(len(added)))
	for _, p := range added {
		out = append(out, lengthOf(p))
	}
	var before netip.Prefix
	for _, p := range added {
		shift := p.Addr().BitLen() - p.Bits()
		n := addrset.NumberOf(p.Addr())
		if before.IsValid() && before.Addr().Is4() == p.Addr().Is4() {
			out = appendNumber(out, right(n, shift).Sub(right(addrset.NumberOf(before.Addr()), shift)))
		} else {
			out = appendNumber(out, right(n, shift))
		}
		before = p
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
	if err != nil {
		return nil, err
	}
	defer enc.Close()
	return enc.EncodeAll(out, nil), nil
}

// errPatch says that a patch is not one of the text that it is used on.
var errPatch = errors.New("the patch is not of this list")

// UnpatchList makes of from what ListPatch was given, of at most so many bytes. The caller
// checks its SHA-256.
func UnpatchList(patch, from []byte, most int64) ([]byte, error) {
	old, is := listOf(from)
	if !is {
		return nil, errPatch
	}
	least := int64(64 << 10) // which a frame may want of any text
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(max(most, least))), zstd.WithDecoderMaxWindow(patchWindow))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	text, err := dec.DecodeAll(patch, nil)
	if err != nil {
		return nil, err
	}
	r := &numbers{rest: text}
	out := &merged{most: most}
	goes := r.count()
	if goes > len(old) {
		return nil, errPatch
	}
	gone := make([]int, 0, goes)
	for at := 0; len(gone) < goes; at++ {
		at += r.count()
		gone = append(gone, at)
	}
	lengths := r.bytes(r.count())
	var before netip.Prefix
	at := 0
	keep := func(until *netip.Prefix) {
		for ; at < len(old) && (until == nil || comparePrefixes(old[at], *until) < 0); at++ {
			if len(gone) > 0 && gone[0] == at {
				gone = gone[1:]
				continue
			}
			out.add(old[at])
		}
	}
	for _, length := range lengths {
		p := r.prefix(length, before)
		if r.failed || out.full {
			return nil, errPatch
		}
		keep(&p)
		out.add(p)
		before = p
	}
	keep(nil)
	if r.failed || len(r.rest) > 0 || len(gone) > 0 || out.full {
		return nil, errPatch
	}
	return out.text, nil
}

// merged is a list that is written.
type merged struct {
	text []byte
	most int64
	full bool
}

func (m *merged) add(p netip.Prefix) {
	if !m.full {
		m.text = addrset.AppendLine(m.text, p)
		m.full = int64(len(m.text)) > m.most
	}
}

// listOf reads a text of prefixes, each behind the one before it and written in the one way.
func listOf(text []byte) ([]netip.Prefix, bool) {
	out := make([]netip.Prefix, 0, bytes.Count(text, []byte{'\n'}))
	var again []byte
	for len(text) > 0 {
		line, rest, whole := bytes.Cut(text, []byte{'\n'})
		p, err := netip.ParsePrefix(string(line))
		if err != nil {
			a, err := netip.ParseAddr(string(line))
			if err != nil {
				return nil, false
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		again = addrset.AppendLine(again[:0], p)
		if n := len(out); !whole || !bytes.Equal(again[:len(again)-1], line) || p.Masked() != p || n > 0 && comparePrefixes(out[n-1], p) >= 0 {
			return nil, false
		}
		out, text = append(out, p), rest
	}
	return out, len(out) > 0
}

func comparePrefixes(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}

// above4 is what the lengths of IPv6 are higher by.
const above4 = 33

func lengthOf(p netip.Prefix) byte {
	n := p.Bits()
	if p.Addr().Is6() {
		n += above4
	}
	return byte(n) //nolint:gosec // at most 161
}

// numbers reads what ListPatch wrote; after a failure all is 0.
type numbers struct {
	rest   []byte
	failed bool
}

// count reads how many there are of what a text has.
func (r *numbers) count() int {
	n := r.number()
	if n.Hi != 0 || n.Lo > MostBlob {
		r.failed = true
		return 0
	}
	return int(n.Lo) //nolint:gosec // it was looked at
}

func (r *numbers) bytes(n int) []byte {
	if n > len(r.rest) {
		r.failed = true
		return nil
	}
	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}

func (r *numbers) number() (n addrset.Number) {
	for shift := 0; ; shift += seven {
		b := r.bytes(1)
		if r.failed {
			return addrset.Number{}
		}
		part := addrset.Number{Lo: uint64(b[0] & (1<<seven - 1))}
		if right(left(part, shift), shift) != part {
			r.failed = true
			return addrset.Number{}
		}
		n = n.Add(left(part, shift))
		if b[0]>>seven == 0 {
			return n
		}
	}
}

// prefix reads the one behind another.
func (r *numbers) prefix(length byte, before netip.Prefix) netip.Prefix {
	is4, bits, width := length < above4, int(length), 32
	if !is4 {
		bits, width = bits-above4, 128
	}
	n := r.number()
	if bits > width {
		r.failed = true
		return netip.Prefix{}
	}
	if before.IsValid() && before.Addr().Is4() == is4 {
		n = n.Add(right(addrset.NumberOf(before.Addr()), width-bits))
	}
	p := netip.PrefixFrom(left(n, width-bits).Addr(is4), bits)
	if before.IsValid() && comparePrefixes(before, p) >= 0 || right(addrset.NumberOf(p.Addr()), width-bits) != n {
		r.failed = true
	}
	return p
}

// seven bits of a number are in a byte, whose highest says that more follow.
const seven = 7

func appendNumber(out []byte, n addrset.Number) []byte {
	for n.Hi != 0 || n.Lo >= 1<<seven {
		out = append(out, byte(n.Lo)|1<<seven) //nolint:gosec // the lowest bits
		n = right(n, seven)
	}
	return append(out, byte(n.Lo)) //nolint:gosec // below 128
}

func right(n addrset.Number, by int) addrset.Number {
	if by >= 64 {
		return addrset.Number{Lo: n.Hi >> (by - 64)}
	}
	return addrset.Number{Hi: n.Hi >> by, Lo: n.Lo>>by | n.Hi<<(64-by)}
}

func left(n addrset.Number, by int) addrset.Number {
	if by >= 64 {
		return addrset.Number{Hi: n.Lo << (by - 64)}
	}
	return addrset.Number{Hi: n.Hi<<by | n.Lo>>(64-by), Lo: n.Lo << by}
}
