package xtables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/program"
)

// effect is what a target does to a packet.
type effect struct {
	// others are verdicts that somebody else may give instead.
	others  []program.Verdict
	actions []program.Action
}

var (
	errElsewhere = errors.New("it is decided elsewhere")
	errForeign   = errors.New("a program has no such action; the packet goes on")
	errEnds      = errors.New("a program has no such action; the packet leaves the table as accepted")
)

// goesOn are targets that decide nothing and change nothing of a packet which conditions
// of a program ask.
var goesOn = []string{
	"AUDIT", "CHECKSUM", "CLASSIFY", "CONNSECMARK", "DSCP", "ECN", "HL", "IDLETIMER", "LED", "LOGMARK", "RATEEST", "SECMARK", "SET", "TCPOPTSTRIP",
	"TEE", "TOS", "TRACE", "TTL",
}

// action says what the rule does; why is what the program does not say of it.
func (r *reader) action() (does effect, why error) {
	if r.target == nil {
		return effect{}, nil
	}
	do := func(a ...program.Action) (effect, error) { return effect{actions: a}, nil }
	name := r.parser.table + "/" + r.target.name
	switch {
	case r.leads() && r.goes:
		return do(program.Goto{Chain: name})
	case r.leads():
		return do(program.Jump{Chain: name})
	}
	switch r.target.name {
	case "ACCEPT":
		return do(program.Accept)
	case "DROP", "TARPIT", "STEAL":
		return do(program.Drop)
	case "RETURN":
		return do(program.Return)
	case "REJECT":
		return do(program.Reject)
	case "LOG":
		return do(program.Log{Prefix: r.option1("--log-prefix")})
	case "NFLOG":
		return r.log("--nflog-prefix", "--nflog-group")
	case "ULOG":
		return r.log("--ulog-prefix", "--ulog-nlgroup")
	case "NOTRACK":
		return do(program.NoTrack{})
	case "CT":
		if len(r.target.options) == 1 && r.target.options[0].name == "--notrack" {
			return do(program.NoTrack{})
		}
		return effect{}, errForeign
	case "MARK":
		return r.mark()
	case "CONNMARK":
		return effect{}, errors.New("a program has no such action; the marks that it writes are not known")
	case "TCPMSS":
		if len(r.target.options) == 1 && r.target.options[0].name == "--clamp-mss-to-pmtu" {
			return do(program.ClampMSS{})
		}
		return effect{}, errForeign
	case "DNAT":
		return r.destination()
	case "REDIRECT":
		return r.redirect()
	case "SNAT":
		return r.source()
	case "MASQUERADE":
		ports, err := r.ports(r.option1("--to-ports"))
		return effect{actions: []program.Action{program.Masquerade{Ports: ports}}}, err
	case "NETMAP":
		return r.netmap()
	case "QUEUE", "NFQUEUE", "TPROXY":
		// Each accepts what it does not drop; TPROXY drops where no socket is found.
		return effect{[]program.Verdict{program.Drop}, []program.Action{program.Accept}}, errElsewhere
	case "SYNPROXY":
		return effect{others: []program.Verdict{program.Drop}}, errElsewhere
	}
	if slices.Contains(goesOn, r.target.name) {
		return effect{}, errForeign
	}
	return effect{others: []program.Verdict{program.Drop, program.Accept}}, fmt.Errorf("target %s is not known", r.target.name)
}

// option1 is the value of one of the target's options, "" where it is not there.
func (r *reader) option1(name string) string {
	for _, o := range r.target.options {
		if value, err := o.value(); err == nil && o.name == name {
			return value
		}
	}
	return ""
}

func (r *reader) log(prefix, group string) (effect, error) {
	number := r.option1(group)
	n, err := strconv.ParseUint(number, 10, 16)
	if number == "" {
		n, err = 0, nil
	}
	if err == nil && n == 0 {
		err = errors.New("it logs to group 0, which a program cannot express")
	}
	return effect{actions: []program.Action{program.Log{Prefix: r.option1(prefix), Group: uint16(n)}}}, err //nolint:gosec // 16 bits
}

// mark: the kernel clears the bits of the mask and turns those of the value round
// (mark_tg of net/netfilter/xt_mark.c).
func (r *reader) mark() (effect, error) {
	if len(r.target.options) != 1 {
		return effect{}, errForeign
	}
	o := r.target.options[0]
	value, err := o.value()
	if err != nil {
		return effect{}, errForeign
	}
	n, mask, err := masked(value)
	switch {
	case err != nil:
		return effect{}, errForeign
	case o.name == "--set-mark":
		mask |= n
	case o.name == "--set-xmark" && n&^mask == 0:
	case o.name == "--or-mark":
		mask = n
	case o.name == "--and-mark":
		n, mask = 0, ^n&(1<<32-1)
	default:
		return effect{}, errForeign
	}
	if mask == 0 {
		return effect{}, nil
	}
	return effect{actions: []program.Action{program.SetMark{Value: uint32(n), Mask: uint32(mask)}}}, nil //nolint:gosec // 32 bits
}

// rewritten reads ADDRESS[-ADDRESS][:PORT[-PORT]], with brackets round IPv6 before a port.
// Several addresses are an error beside the first of them.
func (r *reader) rewritten(text string) (first netip.Addr, ports string, err error) {
	host := text
	if rest, bracketed := strings.CutPrefix(text, "["); bracketed {
		var closed bool
		if host, ports, closed = strings.Cut(rest, "]"); !closed {
			return first, "", errOptions
		}
		ports = strings.TrimPrefix(ports, ":")
	} else if strings.Count(text, ":") == 1 {
		host, ports, _ = strings.Cut(text, ":")
	}
	host, last, several := strings.Cut(host, "-")
	if first, err = netip.ParseAddr(host); err != nil || first.Is4() != (r.family == 4) {
		return first, ports, fmt.Errorf("%s is not an address of this family", host)
	}
	if several && last != host {
		err = fmt.Errorf("the address is one of several, up to %s", last)
	}
	return first, ports, err
}

func (r *reader) ports(text string) (program.NumberRange, error) {
	if text == "" {
		return program.NumberRange{}, nil
	}
	return numbers(text, "-", 65535)
}

// extra are options that change how a translation is chosen, and not what it may be.
func (r *reader) extra() error {
	for _, o := range r.target.options {
		if o.name == "--persistent" || o.name == "--random" || o.name == "--random-fully" {
			return fmt.Errorf("a program cannot choose ports as %s does", o.name)
		}
	}
	return nil
}

func (r *reader) destination() (effect, error) {
	if r.option1("--to-destination") == "" {
		return effect{actions: []program.Action{program.Accept}}, errEnds
	}
	to, text, why := r.rewritten(r.option1("--to-destination"))
	if !to.IsValid() {
		return effect{actions: []program.Action{program.Accept}}, cause(why, errEnds)
	}
	ports, err := r.ports(text)
	if err == nil && ports.From != ports.To {
		err = errors.New("the port is one of several")
	}
	return effect{actions: []program.Action{program.DNAT{To: to, Port: uint16(ports.From)}}}, cause(why, err, r.extra()) //nolint:gosec // a port
}

func (r *reader) redirect() (effect, error) {
	ports, err := r.ports(r.option1("--to-ports"))
	if err == nil && ports.From != ports.To {
		err = errors.New("the port is one of several")
	}
	return effect{actions: []program.Action{program.Redirect{Port: uint16(ports.From)}}}, cause(err, r.extra()) //nolint:gosec // a port
}

func (r *reader) source() (effect, error) {
	to, text, why := r.rewritten(r.option1("--to-source"))
	if !to.IsValid() {
		return effect{actions: []program.Action{program.Accept}}, cause(why, errEnds)
	}
	ports, err := r.ports(text)
	return effect{actions: []program.Action{program.SNAT{To: to, Ports: ports}}}, cause(why, err, r.extra())
}

// netmap maps prefixes of one length; that of the packet has to be in the rule.
func (r *reader) netmap() (effect, error) {
	to, err := netip.ParsePrefix(r.option1("--to"))
	if err != nil {
		if a, is := netip.ParseAddr(r.option1("--to")); is == nil {
			to, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
	}
	field := program.Destination
	if chain := r.rule.Chain; chain == "POSTROUTING" || chain == "INPUT" {
		field = program.Source
	} else if chain != "PREROUTING" && chain != "OUTPUT" {
		err = errEnds // reached from either
	}
	for _, c := range r.conditions {
		if c.Field != field || c.Not || len(c.Addresses) != 1 {
			continue
		}
		if from, is := c.Addresses[0].Prefix(); is && err == nil && from.Bits() == to.Bits() && from.Addr().Is4() == to.Addr().Is4() {
			if field == program.Source {
				return effect{actions: []program.Action{program.SNATPrefix{From: from, To: to.Masked()}}}, nil
			}
			return effect{actions: []program.Action{program.DNATPrefix{From: from, To: to.Masked()}}}, nil
		}
	}
	return effect{actions: []program.Action{program.Accept}}, errEnds
}

// cause is the first error.
func cause(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
