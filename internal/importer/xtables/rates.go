package xtables

import (
	"errors"
	"strconv"
	"strings"

	"sluice/internal/program"
)

var errBehind = errors.New("a program cannot match only packets over a limit, or count like this")

// units of rates in milliseconds, by how they may begin.
var units = []struct {
	name string
	ms   uint64
}{{"second", 1000}, {"minute", 60_000}, {"hour", 3_600_000}, {"day", 86_400_000}}

func rate(text string) (program.Rate, error) {
	number, unit, _ := strings.Cut(text, "/")
	n, err := strconv.ParseUint(number, 10, 32)
	if unit == "" {
		unit = units[0].name
	}
	for _, u := range units {
		if err == nil && n > 0 && strings.HasPrefix(u.name, unit) {
			return program.Rate{Packets: n, Per: u.ms, Burst: 5}, nil // XT_LIMIT_BURST
		}
	}
	return program.Rate{}, errors.New(text + " is not a rate of packets")
}

// limit lifts a bucket that all packets of the rule share.
func (r *reader) limit(e *extension) error {
	of := program.Rate{Packets: 3, Per: 3_600_000, Burst: 5} // XT_LIMIT_AVG
	for _, o := range e.options {
		value, err := o.value()
		if err != nil || o.not {
			return errBehind
		}
		switch o.name {
		case "--limit":
			burst := of.Burst
			if of, err = rate(value); err != nil {
				return err
			}
			of.Burst = burst
		case "--limit-burst":
			if of.Burst, err = strconv.ParseUint(value, 10, 32); err != nil || of.Burst == 0 {
				return errOptions
			}
		default:
			return errOptions
		}
	}
	r.gates = append(r.gates, program.Limit{Name: r.id, Rate: of})
	return nil
}

// hashlimit lifts buckets by source or by destination.
func (r *reader) hashlimit(e *extension) error {
	of := program.Rate{Burst: 5}
	name, mode, mask, size, timeout := "", "", map[string]string{}, uint64(0), uint64(0)
	for _, o := range e.options {
		value, err := o.value()
		if err != nil || o.not {
			return errBehind
		}
		switch o.name {
		case "--hashlimit-upto", "--hashlimit":
			burst := of.Burst
			if of, err = rate(value); err != nil {
				return err
			}
			of.Burst = burst
		case "--hashlimit-burst":
			of.Burst, err = strconv.ParseUint(value, 10, 32)
		case "--hashlimit-mode":
			mode = value
		case "--hashlimit-name":
			name = value
		case "--hashlimit-srcmask", "--hashlimit-dstmask":
			mask[o.name] = value
		case "--hashlimit-htable-max":
			size, err = strconv.ParseUint(value, 10, 31)
		case "--hashlimit-htable-expire":
			timeout, err = strconv.ParseUint(value, 10, 32)
		case "--hashlimit-htable-size", "--hashlimit-htable-gcinterval":
		default:
			return errBehind
		}
		if err != nil {
			return errOptions
		}
	}
	if of.Packets == 0 || of.Burst == 0 || name == "" {
		return errBehind
	}
	gate := program.Limit{Name: "hashlimit " + name, Rate: of}
	switch {
	case mode == "":
	case mode == "srcip" && r.whole(mask["--hashlimit-srcmask"]):
		gate.Per = program.PerSource
	case mode == "dstip" && r.whole(mask["--hashlimit-dstmask"]):
		gate.Per = program.PerDestination
	default:
		return errors.New("the limits of a program have no such key")
	}
	if gate.Per != program.Together {
		gate.Table = r.buckets(gate.Name, int(size), timeout) //nolint:gosec // 31 bits
	}
	r.gates = append(r.gates, gate)
	return nil
}

// connlimit lifts a bound of connections by source or by destination.
func (r *reader) connlimit(e *extension) error {
	gate := program.ConnectionLimit{Name: r.id, Per: program.PerSource}
	mask, upto := "", false
	for _, o := range e.options {
		switch o.name {
		case "--connlimit-saddr":
			continue
		case "--connlimit-daddr":
			gate.Per = program.PerDestination
			continue
		}
		value, err := o.value()
		if err != nil {
			return errOptions
		}
		switch {
		case o.name == "--connlimit-upto" && !o.not, o.name == "--connlimit-above" && o.not:
			n, err := strconv.ParseUint(value, 10, 32)
			if err != nil {
				return errOptions
			}
			gate.Max, upto = uint32(n), true //nolint:gosec // 32 bits
		case o.name == "--connlimit-mask" && !o.not:
			mask = value
		default:
			return errBehind
		}
	}
	switch {
	case !upto:
		return errBehind
	case mask == "0":
		gate.Per = program.Together
	case !r.whole(mask):
		return errors.New("the limits of a program have no such key")
	default:
		gate.Table = r.buckets("connlimit "+r.id, 0, 0)
	}
	r.gates = append(r.gates, gate)
	return nil
}

// whole says whether prefixes of a length are what a program counts by: addresses, of
// IPv6 the first 64 bits.
func (r *reader) whole(mask string) bool {
	if r.family == 6 {
		return mask == "64"
	}
	return mask == "" || mask == "32"
}

// buckets is the set that holds those of a limit.
func (r *reader) buckets(id string, size int, timeout uint64) string {
	if p := r.out.Program; !r.has[id] {
		r.has[id] = true
		p.Sets = append(p.Sets, program.Set{ID: id, Key: []program.Field{program.Source}, Life: program.Dynamic, Size: size, Timeout: timeout})
	}
	return id
}
