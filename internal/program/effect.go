package program

import (
	"net/netip"
	"slices"
)

// EffectOf is what an action does; of none, nothing.
func EffectOf(a Action) Effect {
	if a == nil {
		return Effect{}
	}
	return a.effect()
}

// Effect describes an action, for whoever asks the same of every kind.
type Effect struct {
	Ends     bool    // nothing of the rule comes after it
	Decides  Verdict // the verdict that it is; "": none
	Verdict  bool    // it says where the packet goes on, and may be the verdict of an element
	Gates    bool    // it lets through some of the packets that match, and the others go on behind the rule
	Bounds   bool    // it bounds something for all packets together, so that there may be only one of it
	Tracks   bool    // the kernel tracks connections for it
	Untracks bool    // it keeps packets out of connection tracking

	Calls string // the chain that the packet goes on in, and comes back from at its end
	Goes  string // the chain that it may go on in and does not come back from
	Map   string // the verdict map that says where it goes on

	Reads  []Field // of the packet, beside what Rewrites says
	Writes []Field // of the packet, for rules that follow; Opaque: what no field names
	Asks   []string
	Fills  []string // sets that it changes, by id: where one is full, the rule ends; Asks: those that it only looks up
	Bans   string   // the one of Fills that a source comes into that is over the limit, unless it is in Asks; the packet goes on in Goes, else is dropped
	Labels string   // the name of Status that it turns on

	Counts     string // the counter of every packet that comes to it
	CountsFull string // the counter of those whose source finds a table full
	Flowtable  string

	Marks    SetMark // the bits that it writes to the mark; no Mask: none
	Rewrites Rewriting
}

// Plain says that it decides, counts or keeps out of tracking: what it does to a
// packet depends on no other one.
func (e Effect) Plain() bool { return e.Decides != "" || e.Untracks || e.Counts != "" }

// Rewriting is how an action changes an address. One of To, Own and From is used.
type Rewriting struct {
	Field Field      // Source or Destination; "": it changes none
	To    netip.Addr // the new address
	Own   bool       // one of this host's own, which depends on the packet
	From  netip.Prefix
	As    netip.Prefix // takes the place of From, bit for bit
	Port  uint16       // the new destination port; 0: it stays
}

// Family is 4 or 6 where only packets of that family are rewritten, else 0.
func (r Rewriting) Family() int {
	a := r.To
	if r.From.IsValid() {
		a = r.From.Addr()
	}
	switch {
	case !a.IsValid():
		return 0
	case a.Is4():
		return 4
	}
	return 6
}

// trackingFields are what connection tracking knows of a packet.
var trackingFields = []Field{State, Direction, Status, OriginalSource, OriginalDestination, OriginalPort}

// Tracked says that connection tracking fills a field in.
func Tracked(f Field) bool { return slices.Contains(trackingFields, f) }

func (v Verdict) effect() Effect {
	return Effect{Ends: true, Decides: v, Verdict: true}
}

func (a Jump) effect() Effect { return Effect{Verdict: true, Calls: a.Chain} }

func (a Goto) effect() Effect { return Effect{Ends: true, Verdict: true, Goes: a.Chain} }

func (a VerdictMap) effect() Effect { return Effect{Map: a.Set, Reads: a.Key} }

func (NoTrack) effect() Effect { return Effect{Untracks: true, Writes: trackingFields} }

func (a Count) effect() Effect { return Effect{Counts: a.Counter} }

func (Log) effect() Effect { return Effect{Bounds: true} }

func (a Limit) effect() Effect {
	e := Effect{Gates: true, Bounds: true, Goes: a.Over, Reads: a.Per.fields(), Asks: ids(a.NeverBan), CountsFull: a.FullCounter}
	if a.Asks {
		e.Asks = ids(a.Table, a.NeverBan)
	} else {
		e.Fills, e.Bans = ids(a.Table, a.Ban), a.Ban
	}
	return e
}

func (a ConnectionLimit) effect() Effect {
	return Effect{Gates: true, Bounds: true, Tracks: true, Reads: a.Per.fields(), Fills: ids(a.Table), CountsFull: a.FullCounter}
}

func (a SetAdd) effect() Effect {
	e := Effect{Gates: a.Once, Reads: a.Fields, Fills: ids(a.Set)}
	switch {
	case len(a.Fields) > 0:
	case a.Key == PerDestination:
		e.Reads = []Field{Destination}
	default:
		e.Reads = []Field{Source}
	}
	return e
}

func (a SetLabel) effect() Effect { return Effect{Writes: []Field{Status}, Labels: Label(a.Bit)} }

func (a SetMark) effect() Effect {
	if a.Mask == 0 {
		a.Mask = ^uint32(0)
	}
	a.Value &= a.Mask
	return Effect{Writes: []Field{Mark}, Marks: a}
}

func (a DNAT) effect() Effect {
	return translation(Rewriting{Field: Destination, To: a.To, Port: a.Port})
}

func (a DNATPrefix) effect() Effect {
	return translation(Rewriting{Field: Destination, From: a.From, As: a.To})
}

func (a Redirect) effect() Effect {
	return translation(Rewriting{Field: Destination, Own: true, Port: a.Port})
}

func (a SNAT) effect() Effect { return translation(Rewriting{Field: Source, To: a.To}) }

func (a SNATPrefix) effect() Effect {
	return translation(Rewriting{Field: Source, From: a.From, As: a.To})
}

func (Masquerade) effect() Effect { return translation(Rewriting{Field: Source, Own: true}) }

// translation is by connection tracking, and ends the base chain.
func translation(r Rewriting) Effect { return Effect{Ends: true, Tracks: true, Rewrites: r} }

func (a MapSource) effect() Effect {
	return Effect{Writes: []Field{Source, SourceType}, Rewrites: Rewriting{Field: Source, From: a.From, As: a.To}}
}

func (a MapDestination) effect() Effect {
	return Effect{Writes: []Field{Destination, DestinationType, DestinationHere}, Rewrites: Rewriting{Field: Destination, From: a.From, As: a.To}}
}

func (ClampMSS) effect() Effect { return Effect{Writes: []Field{Opaque}} }

func (a Offload) effect() Effect { return Effect{Tracks: true, Flowtable: a.Flowtable} }

// fields is what of a packet the key is.
func (k SourceKey) fields() []Field {
	switch k {
	case PerSource:
		return []Field{Source}
	case PerDestination:
		return []Field{Destination}
	}
	return nil
}

// ids are those that are not "".
func ids(all ...string) []string {
	out := make([]string, 0, len(all))
	for _, id := range all {
		if id != "" {
			out = append(out, id)
		}
	}
	return out
}
