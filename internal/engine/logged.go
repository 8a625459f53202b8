package engine

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/engine/apply"
	"sluice/internal/language/geo"
	"sluice/internal/program"
	"sluice/internal/system/kernel/nflog"
)

// Logged is a packet that a line of the policy has logged.
type Logged struct {
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
	// Lost is how many were logged before it and could not be read in time.
	Lost uint32 `json:"lost,omitempty"`
}

// linesTime is how old may be what is known of the lines.
const linesTime = time.Second

// Logged calls seen for each packet that the policy that runs sends to the netlink log group,
// and which is chosen, until the context ends. It calls listening when none is missed any
// more. What was lost before packets that are not chosen is told with the next that is.
func (h *Host) Logged(ctx context.Context, c LogChoice, listening func(), seen func(Logged)) error {
	wanted, err := c.of(h)
	if err != nil {
		return err
	}
	countries, err := geo.Open(h.State)
	if err != nil {
		if c.Country != "" {
			return err
		}
		h.warn(wordsOf(err, h.Words)) // packets are shown without
	}
	l := lines{host: h}
	lost := uint32(0)
	return h.Netns.Do(func() error {
		return nflog.Read(ctx, program.LogGroup, program.LogLength, listening, func(p nflog.Packet) {
			out := read(p)
			l.of(&out)
			if countries != nil {
				out.locate(countries)
			}
			lost += p.Lost
			if wanted.has(&out) {
				out.Lost, lost = lost, 0
				seen(out)
			}
		})
	})
}

// lines are those of the generation that runs.
type lines struct {
	host   *Host
	now    *apply.Lines
	looked time.Time
}

func (l *lines) of(out *Logged) {
	if time.Since(l.looked) > linesTime {
		l.looked = time.Now()
		n, _, err := l.host.RunningNow()
		if l.now == nil || err == nil && n != l.now.Generation {
			// What cannot be read leaves packets without a line.
			if now, err := l.host.Lines(); err == nil {
				l.now = now
			}
		}
	}
	if l.now == nil {
		return
	}
	if o, known := l.now.ByID[out.ID]; known {
		out.Generation, out.File, out.Line, out.Rule = l.now.Generation, o.File, o.Line, o.Text
	}
}

func (l *Logged) locate(countries *geo.Database) {
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
