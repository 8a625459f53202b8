package reach

import (
	"math"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"sluice/internal/base/bdd"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

// dimension is one field of a packet, with as many classes of its values as the
// programs can tell apart. A class is a number in so many bits of a region.
type dimension struct {
	field   program.Field
	kind    dimensionKind
	first   int // level of the highest bit
	bits    int
	classes int

	starts []uint64 // numbers: the first value of each class, ascending
	most   uint64   // numbers: the highest value
	// names: exact ones, then wildcards, then "" for every other name
	names  []string
	blocks *blocks // addresses

	known map[string]bdd.Region // of classes, by which they are
}

type dimensionKind int

const (
	numeric dimensionKind = iota
	words                 // a fixed list of names
	devices               // names with wildcards
	addresses
	flag // yes or no
)

// cut notes that a range of numbers begins and ends here.
func (d *dimension) cut(r program.NumberRange) {
	d.starts = append(d.starts, r.From)
	if r.To < d.most {
		d.starts = append(d.starts, r.To+1)
	}
}

func (d *dimension) name(n string) {
	if !slices.Contains(d.names, n) {
		d.names = append(d.names, n)
	}
}

// settle counts the classes and the bits.
func (d *dimension) settle() {
	switch d.kind {
	case numeric:
		d.starts = append(d.starts, 0)
		slices.Sort(d.starts)
		d.starts = slices.Compact(d.starts)
		d.starts = slices.DeleteFunc(d.starts, func(n uint64) bool { return n > d.most })
		d.classes = len(d.starts)
	case words:
		d.names = append(d.names, "")
		d.classes = len(d.names)
	case devices:
		sorting.StableBy(d.names, func(a, b string) int {
			wildA, wildB := strings.HasSuffix(a, "*"), strings.HasSuffix(b, "*")
			switch {
			case wildA != wildB && wildA:
				return 1
			case wildA != wildB:
				return -1
			}
			return strings.Compare(a, b)
		})
		d.names = append(d.names, "")
		d.classes = len(d.names)
	case addresses:
		d.blocks.divide()
		d.classes = d.blocks.classes
	case flag:
		d.classes = 2
	}
	for d.bits = 0; 1<<d.bits < d.classes; {
		d.bits++
	}
	d.known = map[string]bdd.Region{}
}

// class is the class of a number.
func (d *dimension) class(n uint64) int {
	return sort.Search(len(d.starts), func(i int) bool { return d.starts[i] > n }) - 1
}

// end is the last number of a class.
func (d *dimension) end(class int) uint64 {
	if class+1 < len(d.starts) {
		return d.starts[class+1] - 1
	}
	return d.most
}

// ofNumbers is the classes of numbers, whose ends were cut.
func (d *dimension) ofNumbers(ranges []program.NumberRange) []bool {
	in := make([]bool, d.classes)
	for _, r := range ranges {
		if r.From > d.most {
			continue
		}
		for c := d.class(r.From); c < d.classes && d.starts[c] <= r.To; c++ {
			in[c] = true
		}
	}
	return in
}

// underMask is the classes of numbers that have one of the values under a mask.
// The dimension is of single numbers.
func (d *dimension) underMask(ranges []program.NumberRange, mask uint64) []bool {
	in := make([]bool, d.classes)
	for c := range in {
		// A branch, because QEMU 7.2 mistakes SETcc into a new page (see lab/kernels).
		if slices.ContainsFunc(ranges, func(r program.NumberRange) bool { return within(r, d.starts[c]&mask) }) {
			in[c] = true
		}
	}
	return in
}

// ofNames is the classes of names. A wildcard has all names that it fits.
func (d *dimension) ofNames(want []string) []bool {
	in := make([]bool, d.classes)
	for c, n := range d.names {
		if n == "" {
			continue
		}
		fits := func(w string) bool {
			beginning, wild := strings.CutSuffix(w, "*")
			if d.kind == devices && wild {
				return strings.HasPrefix(strings.TrimSuffix(n, "*"), beginning)
			}
			return n == w
		}
		if slices.ContainsFunc(want, fits) { // a branch, as in underMask
			in[c] = true
		}
	}
	return in
}

// ofName is the class of one name, which is not a pattern.
func (d *dimension) ofName(n string) int {
	best := len(d.names) - 1
	for c, pattern := range d.names[:best] {
		if beginning, wild := strings.CutSuffix(pattern, "*"); pattern == n {
			return c
		} else if d.kind == devices && wild && strings.HasPrefix(n, beginning) && (best == len(d.names)-1 || len(pattern) > len(d.names[best])) {
			best = c
		}
	}
	return best
}

// exampleName is a name of a class.
func (d *dimension) exampleName(class int) string {
	pattern := d.names[class]
	beginning, wild := strings.CutSuffix(pattern, "*")
	switch {
	case pattern == "" && d.kind == devices:
		beginning = "other"
	case pattern == "":
		return "other"
	case !wild:
		return pattern
	}
	for n := range 100 {
		name := beginning + string(rune('0'+n/10)) + string(rune('0'+n%10))
		if n < 10 {
			name = beginning + string(rune('0'+n))
		}
		if d.ofName(name) == class {
			return name
		}
	}
	return beginning
}

// region is the packets whose value is of one of the classes. Codes that stand
// for no class are taken as it is shortest.
func (d *dimension) region(s *bdd.Space, in []bool) bdd.Region {
	key := pack(in)
	if r, known := d.known[key]; known {
		return r
	}
	before := make([]int, len(in)+1) // how many are in before each
	for i, is := range in {
		before[i+1] = before[i]
		if is {
			before[i+1]++
		}
	}
	var build func(bit, from int) bdd.Region
	build = func(bit, from int) bdd.Region {
		to := min(from+1<<(d.bits-bit), d.classes)
		switch n := before[max(to, from)] - before[min(from, len(in))]; {
		case from >= to || n == 0:
			return bdd.None
		case n == to-from:
			return bdd.Every
		}
		half := from + 1<<(d.bits-bit-1)
		low := build(bit+1, from)
		high := low
		if half < d.classes {
			high = build(bit+1, half)
		}
		return s.Node(d.first+bit, low, high)
	}
	r := build(0, 0)
	d.known[key] = r
	return r
}

// valid is every code that stands for a class.
func (d *dimension) valid(s *bdd.Space) bdd.Region {
	if d.bits == 0 {
		return bdd.Every
	}
	return s.Range(d.first, d.bits, 0, uint64(d.classes-1)) //nolint:gosec // positive
}

func pack(in []bool) string {
	b := make([]byte, (len(in)+7)/8)
	for i, is := range in {
		if is {
			b[i/8] |= 1 << (i % 8)
		}
	}
	return string(b)
}

func one(n, of int) []bool {
	in := make([]bool, of)
	in[n] = true
	return in
}

// most is the highest value of fields that are numbers.
var most = map[program.Field]uint64{
	program.Protocol: math.MaxUint8, program.Port: math.MaxUint16, program.SourcePort: math.MaxUint16, program.OriginalPort: math.MaxUint16,
	program.ICMPType: math.MaxUint8, program.ICMPCode: math.MaxUint8, program.ICMPv6Type: math.MaxUint8, program.ICMPv6Code: math.MaxUint8,
	program.TCPFlags: math.MaxUint8, program.Fragment: 1, program.LinkType: math.MaxUint16, program.VLAN: 4095,
	program.Length: math.MaxUint16, program.DSCP: 63, program.HopLimit: math.MaxUint8,
	program.Owner: math.MaxUint32 + 1, // one more than there are: no local socket
	program.Mark:  math.MaxUint32,
	program.Time:  math.MaxUint32,
}

// noOwner stands for a packet without a local socket.
const noOwner = math.MaxUint32 + 1

// lists are the names of fields that have few.
var lists = map[program.Field][]string{
	program.State:           {"new", "established", "related", "invalid", "untracked"},
	program.Direction:       {"original", "reply"},
	program.SourceType:      {"unicast", "local", "broadcast", "multicast"},
	program.DestinationType: {"unicast", "local", "broadcast", "multicast"},
	program.DestinationHere: {"unicast", "local", "broadcast", "multicast"},
}

// order is that of the levels, which is also the order in which classes name the
// fields. What few packets differ in comes last, but what handshakes are counted by:
// asked behind addresses and ports, it is asked again for each of them.
var order = []program.Field{
	program.State, program.Protocol, program.ICMPType, program.ICMPCode, program.ICMPv6Type, program.ICMPv6Code, program.Port,
	program.TCPFlags, statusField(""), program.InInterface, program.OutInterface, program.Source, program.Destination, program.Owner, program.SourcePort,
	program.OriginalSource, program.OriginalDestination, program.OriginalPort, program.SourceType, program.DestinationType,
	program.DestinationHere, program.Direction, program.Fragment, program.Length, program.DSCP, program.HopLimit, program.LinkType,
	program.VLAN, program.Mark, program.Time,
}

var multicast = []netip.Prefix{netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("ff00::/8")}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

var linkLocal = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10")}

var broadcast = []netip.Prefix{netip.MustParsePrefix("255.255.255.255/32")}
