package engine

import (
	"context"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/language/geo"
	"sluice/internal/program"
	"sluice/internal/system/kernel/nflog"
)

// Logged is a packet that a line of the policy has logged.
type Logged struct {
	Number     uint64    `json:"number,omitempty"` // of what is kept; 0: it is not
	Time       time.Time `json:"time"`
	Generation int       `json:"generation,omitempty"`
	ID         string    `json:"id,omitempty"`   // of the rule
	File       string    `json:"file,omitempty"` // "" where the id is of no policy that runs
	Line       int       `json:"line,omitempty"`
	Rule       string    `json:"rule,omitempty"`
	Prefix     string    `json:"prefix,omitempty"` // what the line says behind log
	Hook       string    `json:"hook"`
	In         string    `json:"in,omitempty"`
	Out        string    `json:"out,omitempty"`
	// What of the packet could be read: a header that is cut off has none of the rest.
	Source      netip.Addr `json:"source,omitzero"`
	Destination netip.Addr `json:"destination,omitzero"`
	Protocol    string     `json:"protocol,omitempty"` // a name, or the number
	SourcePort  uint16     `json:"source-port,omitempty"`
	Port        uint16     `json:"port,omitempty"`
	Flags       string     `json:"flags,omitempty"` // of TCP
	ICMP        string     `json:"icmp,omitempty"`
	Bytes       int        `json:"bytes,omitempty"` // of the whole packet, by its header
	// Country is of its source, or where the host itself sends it, of its destination: a code
	// of ISO 3166-1 by the country data in use, "" where they have none.
	Country string `json:"country,omitempty"`
	// Called is how the policy that ran calls its service, "" where it has no name for it, and
	// Sets those sets of its line that held an address of it.
	Called string   `json:"service,omitempty"`
	Sets   []string `json:"sets,omitempty"`
	// Lost is how many were logged before it and could not be read or kept in time.
	Lost uint32 `json:"lost,omitempty"`
}

// Service is where it went, as rules name it as far as they can: tcp/22.
func (l *Logged) Service() string {
	switch {
	case l.ICMP != "":
		return l.Protocol + " " + l.ICMP
	case l.Port != 0:
		return l.Protocol + "/" + strconv.Itoa(int(l.Port))
	}
	return l.Protocol
}

// logged calls seen for each packet that the policy that runs sends to the netlink log group
// until the context ends. It calls listening when none is missed any more.
func (h *Host) logged(ctx context.Context, listening func(), seen func(nflog.Packet)) error {
	return h.Netns.Do(func() error {
		return nflog.Read(ctx, program.LogGroup, program.LogLength, listening, seen)
	})
}

func (l *Logged) locate(countries *geo.Database) {
	if countries == nil {
		return
	}
	at := l.Source
	if l.Hook == hooks[unix.NF_INET_LOCAL_OUT] {
		at = l.Destination
	}
	if c, known := countries.Lookup(at); known {
		l.Country = c.Code
	}
}

var hooks = map[uint8]string{
	unix.NF_INET_PRE_ROUTING: "prerouting", unix.NF_INET_LOCAL_IN: "input", unix.NF_INET_FORWARD: "forward",
	unix.NF_INET_LOCAL_OUT: "output", unix.NF_INET_POST_ROUTING: "postrouting",
}

// read is what is to be seen of a packet.
func read(p nflog.Packet) Logged {
	id, prefix, _ := strings.Cut(p.Prefix, " ")
	out := Logged{Time: p.Time, ID: id, Prefix: prefix, Hook: hooks[p.Hook], In: p.In, Out: p.Out, Lost: p.Lost}
	out.decode(p.Family, p.Payload)
	return out
}
