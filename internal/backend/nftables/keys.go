package nftables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/system/kernel/nfset"
)

// keyPart says how values of one type are in a key of the kernel's.
type keyPart struct {
	size int
	kind partKind
}

type partKind uint8

const (
	plainNumber partKind = iota // in network order
	hostNumber                  // in the machine's order, but in network order in sets with intervals
	address
	device
)

// keyPartOf knows the types of Set.Types; "@BASE,OFFSET,BITS" is a part of the
// packet as it is.
func keyPartOf(t string) (keyPart, error) {
	switch t {
	case "ipv4_addr":
		return keyPart{4, address}, nil
	case "ipv6_addr":
		return keyPart{16, address}, nil
	case "inet_proto":
		return keyPart{1, plainNumber}, nil
	case "inet_service":
		return keyPart{2, plainNumber}, nil
	case "mark":
		return keyPart{4, hostNumber}, nil
	case "ifname":
		return keyPart{16, device}, nil
	}
	if at := strings.LastIndexByte(t, ','); strings.HasPrefix(t, "@") && at > 0 {
		if bits, err := strconv.Atoi(t[at+1:]); err == nil && bits > 0 && bits <= 64 {
			return keyPart{(bits + 7) / 8, plainNumber}, nil
		}
	}
	return keyPart{}, fmt.Errorf("values of type %q cannot be put into a key", t)
}

// kind is how the kernel keeps the set.
func (s *Set) kind() nfset.Kind {
	switch {
	case !s.Interval:
		return nfset.Exact
	case len(s.Types) > 1:
		return nfset.Concatenated
	}
	return nfset.Interval
}

// inKernel names the set for package nfset.
func (s *Set) inKernel(table string) nfset.Set {
	return nfset.Set{Family: nfprotoOf(tableFamily(s.Name)), Table: table, Name: s.Name, Kind: s.kind(), Format: func(key []byte) string {
		text, err := s.tuple(key, nil)
		if err != nil {
			return fmt.Sprintf("%x", key)
		}
		return text
	}}
}

var errKeySize = errors.New("a key of the wrong size for the set")

// appendKey appends the first and the last key of a tuple.
func (s *Set) appendKey(from, to []byte, tuple string) (first, last []byte, err error) {
	rest := tuple
	for i, t := range s.Types {
		part, more := rest, false
		if len(s.Types) > 1 {
			part, rest, more = strings.Cut(rest, " . ")
		}
		if more != (i < len(s.Types)-1) {
			return nil, nil, fmt.Errorf("element %q: %w", tuple, errKeySize)
		}
		if from, to, err = s.appendPart(from, to, t, part); err != nil {
			return nil, nil, fmt.Errorf("element %q: %w", tuple, err)
		}
		for len(s.Types) > 1 && len(from)%4 != 0 {
			from, to = append(from, 0), append(to, 0)
		}
	}
	return from, to, nil
}

func (s *Set) appendPart(from, to []byte, kind, text string) (first, last []byte, err error) {
	p, err := keyPartOf(kind)
	if err != nil {
		return nil, nil, err
	}
	switch p.kind {
	case address:
		r, err := addrset.ParseRange(text)
		if err != nil {
			return nil, nil, err
		}
		if r.From.BitLen() != 8*p.size {
			return nil, nil, errKeySize
		}
		return appendAddress(from, r.From), appendAddress(to, r.To), nil
	case device:
		if len(text) >= p.size {
			return nil, nil, errKeySize
		}
		from, to = append(from, text...), append(to, text...)
		for range p.size - len(text) {
			from, to = append(from, 0), append(to, 0)
		}
		return from, to, nil
	case plainNumber, hostNumber:
	}
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	a, err := strconv.ParseUint(low, 0, 8*p.size)
	if err != nil {
		return nil, nil, err
	}
	b, err := strconv.ParseUint(high, 0, 8*p.size)
	if err != nil {
		return nil, nil, err
	}
	return s.appendNumber(from, p, a), s.appendNumber(to, p, b), nil
}

func appendAddress(to []byte, a netip.Addr) []byte {
	if a.Is4() {
		b := a.As4()
		return append(to, b[:]...)
	}
	b := a.As16()
	return append(to, b[:]...)
}

func (s *Set) appendNumber(to []byte, p keyPart, n uint64) []byte {
	if p.kind == hostNumber && !s.Interval {
		return binary.NativeEndian.AppendUint32(to, uint32(n)) //nolint:gosec // it was read as 32 bits
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	return append(to, b[8-p.size:]...)
}

// tuple is a key, or the range to end, as Elements.Tuples has it.
func (s *Set) tuple(key, end []byte) (string, error) {
	if end == nil {
		end = key
	}
	var b strings.Builder
	for i, t := range s.Types {
		p, err := keyPartOf(t)
		if t == rawInteger && len(s.Types) == 1 {
			p, err = keyPart{len(key), plainNumber}, nil
		}
		if err != nil {
			return "", err
		}
		padded := p.size
		if len(s.Types) > 1 {
			padded = (p.size + 3) &^ 3
		}
		if len(key) < padded || len(end) < padded {
			return "", errKeySize
		}
		if i > 0 {
			b.WriteString(" . ")
		}
		b.WriteString(s.partText(p, key[:p.size], end[:p.size]))
		key, end = key[padded:], end[padded:]
	}
	if len(key) > 0 {
		return "", errKeySize
	}
	return b.String(), nil
}

func (s *Set) partText(p keyPart, from, to []byte) string {
	switch p.kind {
	case address:
		a, _ := netip.AddrFromSlice(from)
		b, _ := netip.AddrFromSlice(to)
		return addrset.Range{From: a, To: b}.String()
	case device:
		name := string(bytes.TrimRight(from, "\x00"))
		if !bytes.Equal(from, to) {
			name += "-" + string(bytes.TrimRight(to, "\x00")) + " " // no name has a blank
		}
		return name
	case plainNumber, hostNumber:
	}
	text := strconv.FormatUint(s.numberOf(p, from), 10)
	if !bytes.Equal(from, to) {
		text += "-" + strconv.FormatUint(s.numberOf(p, to), 10)
	}
	return text
}

func (s *Set) numberOf(p keyPart, b []byte) uint64 {
	if p.kind == hostNumber && !s.Interval {
		return uint64(binary.NativeEndian.Uint32(b))
	}
	var n uint64
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}

// verdictWords are the verdicts that name no chain.
var verdictWords = map[string]nfset.Does{"accept": nfset.Accept, "drop": nfset.Drop, "continue": nfset.Continue, "return": nfset.Return}

// verdictOf reads a verdict as Elements.Verdicts has it.
func verdictOf(text string) (nfset.Verdict, error) {
	if does, is := verdictWords[text]; is {
		return nfset.Verdict{Does: does}, nil
	}
	switch verb, chain, _ := strings.Cut(text, " "); {
	case verb == "jump" && chain != "":
		return nfset.Verdict{Does: nfset.Jump, Chain: chain}, nil
	case verb == "goto" && chain != "":
		return nfset.Verdict{Does: nfset.Goto, Chain: chain}, nil
	}
	return nfset.Verdict{}, fmt.Errorf("not a verdict: %q", text)
}

// verdictText turns verdictOf round.
func verdictText(v nfset.Verdict) string {
	switch v.Does {
	case nfset.Jump:
		return "jump " + v.Chain
	case nfset.Goto:
		return "goto " + v.Chain
	case nfset.None, nfset.Accept, nfset.Drop, nfset.Continue, nfset.Return:
	}
	for word, does := range verdictWords {
		if does == v.Does {
			return word
		}
	}
	return ""
}

// forKernel gives the elements as package nfset takes them; each is good until
// the next. An element that cannot be written ends them, and malformed is told.
func (s *Set) forKernel(counts map[string]backend.Count, malformed func(error)) iter.Seq[nfset.Element] {
	return func(yield func(nfset.Element) bool) {
		var from, to []byte
		give := func(e nfset.Element, element func() string) bool {
			if len(counts)+len(s.Elements.Counters) > 0 {
				text := element()
				if c, is := counts[text]; is {
					e.Counted, e.Packets, e.Bytes = true, c.Packets, c.Bytes
				}
				e.Comment = s.Elements.Counters[text]
			}
			return yield(e)
		}
		for r, left := range s.lasting(time.Now()) {
			from, to = appendAddress(from[:0], r.From), appendAddress(to[:0], r.To)
			if !give(nfset.Element{Key: from, End: to, Timeout: left}, r.String) {
				return
			}
		}
		for i, tuple := range s.Elements.Tuples {
			var e nfset.Element
			var err error
			if from, to, err = s.appendKey(from[:0], to[:0], tuple); err == nil && s.Verdicts {
				e.Verdict, err = verdictOf(s.Elements.Verdicts[i])
			}
			if err != nil {
				malformed(fmt.Errorf("set %s: %w", s.Name, err))
				return
			}
			e.Key, e.End = from, to
			if !give(e, func() string { return tuple }) {
				return
			}
		}
	}
}
