package engine

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/engine/apply"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
)

// LogChoice is which logged packets are wanted; the zero value is all.
type LogChoice struct {
	Source  string // an address, a prefix or a range
	Service string // of the policy that runs, or as it names one
	Country string // a code of ISO 3166-1; of whom it is, see Logged
	Line    string // FILE:LINE, or LINE of any file
	// Called names these words as whoever asks knows them, for errors.
	Called map[string]string
}

// chosen says of a packet whether it is wanted.
type chosen []func(*Logged) bool

func (c chosen) has(l *Logged) bool {
	return !slices.ContainsFunc(c, func(wanted func(*Logged) bool) bool { return !wanted(l) })
}

// of reads what is wanted. Services are those of the policy that runs now.
func (c LogChoice) of(h *Host) (out chosen, err error) {
	if c.Source != "" {
		r, err := addrset.ParseRange(c.Source)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Called["source"], err)
		}
		all := addrset.Of(r)
		out = append(out, func(l *Logged) bool { return all.Contains(l.Source) })
	}
	if c.Country != "" {
		code, err := geo.KnownCountry(c.Country)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Called["country"], err)
		}
		out = append(out, func(l *Logged) bool { return l.Country == code })
	}
	if c.Line != "" {
		file, text, named := cutLast(c.Line)
		line, err := strconv.Atoi(text)
		if err != nil || line < 1 {
			return nil, fmt.Errorf("%s %q is no line such as policy.yaml:22", c.Called["line"], c.Line)
		}
		out = append(out, func(l *Logged) bool {
			return l.Line == line && (!named || l.File == file || strings.HasSuffix(l.File, "/"+file))
		})
	}
	if c.Service != "" {
		services, err := h.services(c.Called["service"], c.Service)
		if err != nil {
			return nil, err
		}
		out = append(out, func(l *Logged) bool {
			return services == nil || slices.ContainsFunc(services, func(s policy.ServiceRef) bool { return slices.ContainsFunc(s.Matches, l.is) })
		})
	}
	return out, nil
}

// cutLast cuts at the last colon.
func cutLast(text string) (before, after string, found bool) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return "", text, false
	}
	return text[:i], text[i+1:], i > 0
}

func (h *Host) services(called, text string) ([]policy.ServiceRef, error) {
	p := &policy.Policy{}
	running, err := h.Running(nil)
	var closed *apply.ClosedRunsError
	switch {
	case err == nil:
		p = running.Policy
	case !errors.Is(err, apply.ErrNoPolicy) && !errors.As(err, &closed):
		return nil, err
	}
	return p.Asking().Services(called, text)
}

// is says whether it is of a service. A packet whose ports were cut off is of none that has
// some.
func (l *Logged) is(m policy.ServiceMatch) bool {
	if m.Any {
		return true
	}
	six := l.Protocol == packet.ProtocolName(packet.ICMPv6)
	if l.Protocol != packet.ProtocolName(m.Protocol) && !(six && m.Protocol == packet.ICMP) {
		return false
	}
	if m.ICMP != nil {
		kind := m.ICMP.V4
		if six {
			kind = m.ICMP.V6
		}
		return strings.HasPrefix(l.ICMP, strconv.Itoa(kind)+"/")
	}
	return len(m.Ports) == 0 || slices.ContainsFunc(m.Ports, func(p policy.PortRange) bool { return p.From <= l.Port && l.Port <= p.To })
}
