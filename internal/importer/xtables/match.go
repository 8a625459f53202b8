package xtables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// protocols are the matches that bear a protocol's name.
var protocols = []string{"tcp", "udp", "udplite", "sctp", "dccp", "icmp", "icmp6"}

// aliases are other names of protocols, and those of their matches.
var aliases = map[string]string{
	"ipv6-icmp": "icmp6", "icmpv6": "icmp6", "58": "icmp6", "1": "icmp", "6": "tcp", "17": "udp", "33": "dccp", "132": "sctp", "136": "udplite",
}

// numbersOf is /etc/protocols as far as iptables knows it by itself (xtables_chain_protos),
// and what else people write.
var numbersOf = map[string]uint64{
	"tcp": 6, "sctp": 132, "udp": 17, "udplite": 136, "icmp": 1, "icmpv6": 58, "ipv6-icmp": 58, "esp": 50, "ah": 51, "ipv6-mh": 135, "mh": 135,
	"dccp": 33, "gre": 47, "igmp": 2, "ospf": 89, "ipencap": 4, "ipv6": 41, "pim": 103, "vrrp": 112, "ipcomp": 108, "l2tp": 115,
}

var (
	errUnknown = errors.New("a program has no such condition")
	errOptions = errors.New("unknown options")
)

// match lifts a match; its options hold all together.
func (r *reader) match(e *extension) error {
	switch e.name {
	case "comment":
		if len(e.options) == 1 && len(e.options[0].values) > 0 {
			r.comment = e.options[0].values[0].text
		}
		return nil
	case "limit":
		return r.limit(e)
	case "hashlimit":
		return r.hashlimit(e)
	case "connlimit":
		return r.connlimit(e)
	case "set":
		return r.inSet(e)
	}
	if len(e.options) == 0 && !slices.Contains(protocols, e.name) {
		return errUnknown
	}
	for _, o := range e.options {
		c, err := r.condition(e, o)
		switch {
		case err != nil && e.name == "conntrack" && len(e.options) > 1:
			r.opaque(&extension{name: e.name, options: []option{o}, text: "-m conntrack " + o.text}, err) // each asks for itself
		case err != nil:
			return err
		}
		r.conditions = append(r.conditions, c...)
	}
	return nil
}

func (r *reader) condition(e *extension, o option) ([]program.Condition, error) {
	switch e.name {
	case "":
		return r.basic(o)
	case "tcp", "udp", "udplite", "sctp", "dccp":
		return r.transport(o)
	case "icmp":
		return icmp(o, "--icmp-type", program.ICMPType, program.ICMPCode)
	case "icmp6":
		return icmp(o, "--icmpv6-type", program.ICMPv6Type, program.ICMPv6Code)
	case "multiport":
		return r.multiport(o)
	case "state", "conntrack":
		return r.conntrack(e, o)
	case "addrtype":
		return addrtype(e, o)
	}
	value, err := o.value()
	if err != nil {
		return nil, errUnknown
	}
	switch e.name + o.name {
	case "mark--mark":
		n, mask, err := masked(value)
		if err != nil || mask == 0 || n&^mask != 0 {
			return nil, errUnknown
		}
		if mask == 1<<32-1 {
			mask = 0
		}
		return one(program.Condition{Field: program.Mark, Not: o.not, Numbers: single(n), Mask: mask}), nil
	case "owner--uid-owner":
		if o.not {
			return nil, errors.New("it also matches packets without a socket (owner_mt), and a program has no such condition")
		}
		return ranged(program.Owner, o.not, value, "-")
	case "length--length":
		return ranged(program.Length, o.not, value, ":")
	case "dscp--dscp":
		n, err := strconv.ParseUint(value, 0, 6)
		return one(program.Condition{Field: program.DSCP, Not: o.not, Numbers: single(n)}), err
	case "hl--hl-eq", "hl--hl-lt", "hl--hl-gt":
		return hops(o, value)
	case "iprange--src-range":
		return r.addresses(program.Source, o.not, value)
	case "iprange--dst-range":
		return r.addresses(program.Destination, o.not, value)
	}
	return nil, errUnknown
}

func one(c program.Condition) []program.Condition { return []program.Condition{c} }

func single(n uint64) []program.NumberRange { return []program.NumberRange{{From: n, To: n}} }

func (r *reader) basic(o option) ([]program.Condition, error) {
	if o.name == "-f" {
		return one(program.Condition{Field: program.Fragment, Not: o.not, Numbers: single(1)}), nil
	}
	value, err := o.value()
	if err != nil {
		return nil, err
	}
	switch o.name {
	case "-p":
		if value == "all" || value == "0" {
			return nil, nil
		}
		n, known := numbersOf[value]
		if !known {
			if n, err = strconv.ParseUint(value, 10, 8); err != nil {
				return nil, fmt.Errorf("protocol %s is not known", value)
			}
		}
		return one(program.Condition{Field: program.Protocol, Not: o.not, Numbers: single(n)}), nil
	case "-s":
		return r.addresses(program.Source, o.not, value)
	case "-d":
		return r.addresses(program.Destination, o.not, value)
	}
	field := program.InInterface
	if o.name == "-o" {
		field = program.OutInterface
	}
	if start, wild := strings.CutSuffix(value, "+"); wild {
		if value = start + "*"; start == "" && !o.not {
			return nil, nil
		}
	}
	return one(program.Condition{Field: field, Not: o.not, Names: []string{value}}), nil
}

// addresses reads 192.0.2.0/24, 192.0.2.0/255.255.255.0 or 192.0.2.1-192.0.2.9.
func (r *reader) addresses(field program.Field, not bool, text string) ([]program.Condition, error) {
	address, mask, has := strings.Cut(text, "/")
	if from, err := netip.ParseAddr(mask); has && err == nil {
		bits, contiguous := prefixLength(from)
		if !contiguous {
			return nil, errors.New("its mask is not a prefix")
		}
		text = address + "/" + strconv.Itoa(bits)
	}
	a, err := addrset.ParseRange(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s is not an address", text)
	case a.From.Is4() != (r.family == 4):
		return nil, fmt.Errorf("%s belongs to another family", text)
	}
	if p, is := a.Prefix(); is && p.Bits() == 0 && !not {
		return nil, nil
	}
	return one(program.Condition{Field: field, Not: not, Addresses: []addrset.Range{a}}), nil
}

// prefixLength is how many bits a mask begins with; not contiguous where others follow.
func prefixLength(mask netip.Addr) (bits int, contiguous bool) {
	ended := false
	for _, b := range mask.AsSlice() {
		for i := 7; i >= 0; i-- {
			set := b>>i&1 == 1
			if set && ended {
				return 0, false
			}
			if ended = !set; set {
				bits++
			}
		}
	}
	return bits, true
}

// flags are those of TCP, as the header has them.
var flags = map[string]uint64{"FIN": 1, "SYN": 2, "RST": 4, "PSH": 8, "ACK": 16, "URG": 32, "ECE": 64, "CWR": 128, "ALL": 63, "NONE": 0}

func flagsOf(list string) (n uint64, err error) {
	for name := range strings.SplitSeq(list, ",") {
		bits, known := flags[name]
		if !known {
			return 0, fmt.Errorf("%s is not a TCP flag", name)
		}
		n |= bits
	}
	return n, nil
}

func (r *reader) transport(o option) ([]program.Condition, error) {
	if err := r.asksPorts(); err != nil {
		return nil, err
	}
	switch o.name {
	case "--syn":
		return one(program.Condition{Field: program.TCPFlags, Not: o.not, Numbers: single(2), Mask: 23}), nil
	case "--tcp-flags":
		if len(o.values) != 2 {
			return nil, errOptions
		}
		mask, err := flagsOf(o.values[0].text)
		if err != nil {
			return nil, err
		}
		n, err := flagsOf(o.values[1].text)
		switch {
		case err != nil:
			return nil, err
		case mask == 0 || n&^mask != 0:
			return nil, errors.New("no packet has such flags")
		}
		return one(program.Condition{Field: program.TCPFlags, Not: o.not, Numbers: single(n), Mask: mask}), nil
	}
	value, err := o.value()
	if err != nil {
		return nil, err
	}
	switch o.name {
	case "--sport", "--source-port":
		return ports(program.SourcePort, o.not, value)
	case "--dport", "--destination-port":
		return ports(program.Port, o.not, value)
	}
	return nil, errUnknown
}

// asksPorts: without a protocol a rule asks for no ports, and iptables refuses it.
func (r *reader) asksPorts() error {
	if r.protocol.name == "" || r.protocol.options[0].not {
		return errors.New("it matches ports without a protocol")
	}
	return nil
}

func ports(field program.Field, not bool, list string) ([]program.Condition, error) {
	c := program.Condition{Field: field, Not: not}
	for text := range strings.SplitSeq(list, ",") {
		part, err := numbers(text, ":", 65535)
		if err != nil {
			return nil, err
		}
		c.Numbers = append(c.Numbers, part)
	}
	c.Numbers = program.MergeNumbers(c.Numbers)
	if !not && slices.Contains(c.Numbers, program.NumberRange{To: 65535}) {
		return nil, nil
	}
	return one(c), nil
}

// numbers reads A, A:B, A: or :B.
func numbers(text, sign string, most uint64) (program.NumberRange, error) {
	from, to, two := strings.Cut(text, sign)
	if !two {
		to = from
	}
	out := program.NumberRange{To: most}
	var err, err2 error
	if from != "" {
		out.From, err = strconv.ParseUint(from, 0, 64)
	}
	if to != "" {
		out.To, err2 = strconv.ParseUint(to, 0, 64)
	}
	if text == "" || err != nil || err2 != nil || out.From > out.To || out.To > most {
		return out, fmt.Errorf("%s is not a range of numbers up to %d", text, most)
	}
	return out, nil
}

func ranged(field program.Field, not bool, value, sign string) ([]program.Condition, error) {
	most := uint64(65535)
	if field == program.Owner {
		most = 1<<32 - 1
	}
	n, err := numbers(value, sign, most)
	return one(program.Condition{Field: field, Not: not, Numbers: []program.NumberRange{n}}), err
}

func (r *reader) multiport(o option) ([]program.Condition, error) {
	if err := r.asksPorts(); err != nil {
		return nil, err
	}
	value, err := o.value()
	if err != nil {
		return nil, err
	}
	switch o.name {
	case "--sports", "--source-ports":
		return ports(program.SourcePort, o.not, value)
	case "--dports", "--destination-ports":
		return ports(program.Port, o.not, value)
	case "--ports":
		c, err := ports(program.Port, true, value)
		switch {
		case err != nil:
			return nil, err
		case o.not:
			other := c[0]
			other.Field = program.SourcePort
			return append(c, other), nil
		case r.both != nil:
			return nil, errUnknown
		}
		r.both = c[0].Numbers
		return nil, nil
	}
	return nil, errOptions
}

// types are the names of ICMP types that iptables prints or people write, without codes.
var types = map[string]map[string]string{
	"--icmp-type": {
		"echo-reply": "0", "pong": "0", "destination-unreachable": "3", "fragmentation-needed": "3/4", "source-quench": "4", "redirect": "5",
		"echo-request": "8", "ping": "8", "router-advertisement": "9", "router-solicitation": "10", "time-exceeded": "11", "ttl-exceeded": "11",
		"parameter-problem": "12", "timestamp-request": "13", "timestamp-reply": "14", "address-mask-request": "17", "address-mask-reply": "18",
	},
	"--icmpv6-type": {
		"destination-unreachable": "1", "packet-too-big": "2", "time-exceeded": "3", "ttl-exceeded": "3", "parameter-problem": "4",
		"echo-request": "128", "ping": "128", "echo-reply": "129", "pong": "129", "router-solicitation": "133", "router-advertisement": "134",
		"neighbour-solicitation": "135", "neighbor-solicitation": "135", "neighbour-advertisement": "136", "neighbor-advertisement": "136", "redirect": "137",
	},
}

func icmp(o option, name string, kind, code program.Field) ([]program.Condition, error) {
	value, err := o.value()
	if err != nil || o.name != name {
		return nil, errOptions
	}
	if value == "any" && !o.not || value == "255" && name == "--icmp-type" && !o.not {
		return nil, nil
	}
	if number := types[name][value]; number != "" {
		value = number
	}
	t, c, coded := strings.Cut(value, "/")
	of, err := numbers(t, ":", 255)
	if err != nil {
		return nil, fmt.Errorf("type %s is not known", t)
	}
	out := one(program.Condition{Field: kind, Not: o.not, Numbers: []program.NumberRange{of}})
	if !coded {
		return out, nil
	}
	n, err := numbers(c, ":", 255)
	if err != nil || o.not {
		return nil, errUnknown
	}
	return append(out, program.Condition{Field: code, Numbers: []program.NumberRange{n}}), nil
}

// states are those of --ctstate and --state that a program calls states.
var states = map[string]string{"NEW": "new", "ESTABLISHED": "established", "RELATED": "related", "INVALID": "invalid", "UNTRACKED": "untracked"}

// statuses are those of --ctstate and --ctstatus that are bits of the connection.
var statuses = map[string]string{"SNAT": "snat", "DNAT": "dnat", "ASSURED": "assured", "CONFIRMED": "confirmed"}

func (r *reader) conntrack(e *extension, o option) ([]program.Condition, error) {
	value, err := o.value()
	if err != nil {
		return nil, err
	}
	switch o.name {
	case "--ctstate", "--state":
		if out, all := named(program.State, o.not, value, states); all {
			return out, nil
		}
		fallthrough
	case "--ctstatus":
		out, all := named(program.Status, o.not, value, statuses)
		if !all || o.name != "--ctstatus" && o.not { // which packets without a connection match too
			return nil, errUnknown
		}
		return out, nil
	case "--ctorigsrc":
		return r.addresses(program.OriginalSource, o.not, value)
	case "--ctorigdst":
		return r.addresses(program.OriginalDestination, o.not, value)
	case "--ctorigdstport":
		return ports(program.OriginalPort, o.not, value)
	case "--ctdir":
		if out, all := named(program.Direction, o.not, value, map[string]string{"ORIGINAL": "original", "REPLY": "reply"}); all {
			return out, nil
		}
	}
	return nil, errUnknown
}

// named is a condition on names; all says that each of the list is known.
func named(field program.Field, not bool, list string, known map[string]string) (out []program.Condition, all bool) {
	c := program.Condition{Field: field, Not: not}
	for text := range strings.SplitSeq(list, ",") {
		name := known[strings.ToUpper(text)]
		if name == "" {
			return nil, false
		}
		if !slices.Contains(c.Names, name) {
			c.Names = append(c.Names, name)
		}
	}
	return one(c), true
}

// kinds are the types of addresses that a program knows.
var kinds = map[string]string{"UNICAST": "unicast", "LOCAL": "local", "BROADCAST": "broadcast", "MULTICAST": "multicast"}

func addrtype(e *extension, o option) ([]program.Condition, error) {
	here := false
	for _, other := range e.options {
		switch other.name {
		case "--limit-iface-in":
			here = true
		case "--src-type", "--dst-type":
		default:
			return nil, errUnknown
		}
	}
	field := map[string]program.Field{"--src-type": program.SourceType, "--dst-type": program.DestinationType}[o.name]
	switch {
	case field == "":
		return nil, nil // --limit-iface-in
	case here && field == program.SourceType:
		return nil, errUnknown
	case here:
		field = program.DestinationHere
	}
	value, err := o.value()
	if err != nil {
		return nil, err
	}
	out, all := named(field, o.not, value, kinds)
	if !all {
		return nil, errUnknown
	}
	return out, nil
}

func hops(o option, value string) ([]program.Condition, error) {
	n, err := numbers(value, ":", 255)
	switch {
	case err != nil:
		return nil, err
	case o.name == "--hl-lt" && n.From == 0, o.name == "--hl-gt" && n.From == 255:
		return nil, errors.New("no packet has such a hop limit")
	case o.name == "--hl-lt":
		n = program.NumberRange{To: n.From - 1}
	case o.name == "--hl-gt":
		n = program.NumberRange{From: n.From + 1, To: 255}
	}
	return one(program.Condition{Field: program.HopLimit, Not: o.not, Numbers: []program.NumberRange{n}}), nil
}

// masked reads N or N/MASK, in any base.
func masked(text string) (n, mask uint64, err error) {
	number, of, has := strings.Cut(text, "/")
	mask = 1<<32 - 1
	n, err = strconv.ParseUint(number, 0, 32)
	if err == nil && has {
		mask, err = strconv.ParseUint(of, 0, 32)
	}
	return n, mask, err
}
