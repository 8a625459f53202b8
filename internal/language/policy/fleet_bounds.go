package policy

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/language/source"
)

// BanBounds is what the controller of a fleet may ban on its hosts.
type BanBounds struct {
	Pos     Pos
	Max     int           // how many bans of the fleet a host has at a time
	For     time.Duration // the longest
	Widest4 int           // the length of the shortest prefix of IPv4, and
	Widest6 int           // of IPv6; a range has no more addresses than it
}

// ShareBans is when an address that limits of hosts ban is banned by the fleet.
type ShareBans struct {
	Pos   Pos
	After int           // how many hosts have banned it
	For   time.Duration // how long it is banned then
}

func defaultBanBounds() *BanBounds {
	return &BanBounds{Max: 100_000, For: 7 * 24 * time.Hour, Widest4: 24, Widest6: 48}
}

// mostBans is what a host takes in seconds and holds in some hundred MB of memory.
const mostBans = 1_000_000

// banBounds reads what the controller may ban.
func (f *file) banBounds(e source.Entry) *BanBounds {
	b := defaultBanBounds()
	b.Pos = f.At(e.Key)
	if source.IsNull(e.Value) {
		return b
	}
	for _, k := range f.Known(e.Value, grammar.Of("fleet-bans")) {
		switch k.Name {
		case "max":
			b.Max = int(f.number(k.Value, "max", mostBans)) //nolint:gosec // at most mostBans
		case "for":
			b.For = f.duration(k.Value, "for")
		case "widest":
			f.widest(k.Value, b)
		}
	}
	return b
}

// widest reads the lengths of two prefixes.
func (f *file) widest(n *yaml.Node, b *BanBounds) {
	const hint = "write widest: [24, 48], the prefix lengths for IPv4 and IPv6"
	if n.Kind != yaml.SequenceNode || len(n.Content) != 2 {
		f.fail(f.At(n), hint, "widest needs two prefix lengths")
		return
	}
	for i, most := range []uint64{32, 128} {
		length := int(f.number(n.Content[i], "the length of a prefix", most)) //nolint:gosec // at most 128
		if i == 0 {
			b.Widest4 = length
		} else {
			b.Widest6 = length
		}
	}
}

// drift reads what happens to rules that somebody changed on a host of a part.
func (f *file) drift(e source.Entry) {
	fleet := f.policy.Fleet
	if fleet == nil { // a part alone
		fleet = &Fleet{}
	}
	if f.Once(e, &fleet.Drift) {
		fleet.Restore = f.Either(e, "report", "restore")
	}
}

// shareBans reads when the fleet bans what limits of its hosts do.
func (f *file) shareBans(e source.Entry) *ShareBans {
	s := &ShareBans{Pos: f.At(e.Key)}
	keys := f.Known(e.Value, grammar.Of("share-bans"))
	if len(keys) < 2 {
		f.fail(s.Pos, "write share-bans: {after: 3 hosts, for: 1h}", "share-bans needs after and for")
	}
	for _, k := range keys {
		switch k.Name {
		case "after":
			s.After = valueOf(f, k.Value, "after", parseHosts, func(n int) string { return english.Plural(n, "host") })
		case "for":
			s.For = f.duration(k.Value, "for")
		}
	}
	return s
}

// leastSharing is how many hosts have to have banned an address.
const leastSharing = 2

func parseHosts(s string) (int, *problem) {
	count, unit, _ := strings.Cut(strings.TrimSpace(s), " ")
	if unit = strings.TrimSpace(unit); unit != "hosts" && unit != "host" {
		return 0, problemf("write it as in 3 hosts", "%s is not a number of hosts", source.Quote(s))
	}
	n, p := parseNumber(count, "after", mostHosts)
	if p == nil && n < leastSharing {
		p = problemf("write after: 2 hosts, or more", "after must be at least %d hosts: otherwise one host that lies could ban on all", leastSharing)
	}
	return int(n), p //nolint:gosec // at most mostHosts
}

// boundShared checks that the controller may ban what it is to.
func (f *file) boundShared(fleet *Fleet) {
	s, b := fleet.ShareBans, fleet.Bans
	switch {
	case s == nil || f.lenient:
	case b == nil:
		f.fail(s.Pos, "write bans: {for: "+formatDuration(max(s.For, time.Hour))+"}", "share-bans needs bans, which lets the controller ban")
	case s.For > b.For:
		f.fail(s.Pos, "", "for is %s, but bans lets the controller ban for at most %s", formatDuration(s.For), formatDuration(b.For))
	}
}

// neverBanned is what never-ban of a part names, where its sets or those of the fleet have it
// written out.
func (p *Policy) neverBanned(fleet *Policy) (all addrset.Set) {
	seen := map[string]bool{}
	var named func(name string)
	named = func(name string) {
		s := p.Set(name)
		if s == nil {
			s = fleet.Set(name)
		}
		if s == nil || seen[name] {
			return
		}
		seen[name] = true
		for _, r := range s.Elements {
			all = all.Union(addrset.Of(r.Range))
		}
		for _, w := range s.Union {
			named(w.Text)
		}
	}
	for _, who := range p.NeverBan {
		for _, item := range who.Items {
			if item.Name != "" {
				named(item.Name)
				continue
			}
			all = all.Union(addrset.Of(item.Literal))
		}
	}
	return all
}

// MayBan says why the fleet forbids its controller a ban for a time, 0 being for good, as an
// *Error.
func (p *Policy) MayBan(what addrset.Range, length time.Duration) error {
	b := p.Fleet.Bans
	if b == nil {
		return p.Errorf(p.Fleet.Pos, "write bans: {} in the file of the fleet and sign it", "the fleet does not let its controller ban")
	}
	if length == 0 || length > b.For {
		return p.Errorf(b.Pos, "", "the fleet lets its controller ban for at most %s", formatDuration(b.For))
	}
	widest := b.Widest6
	if what.From.Is4() {
		widest = b.Widest4
	}
	as := addrset.PrefixRange(netip.PrefixFrom(what.From, widest).Masked())
	if size, most := distance(what), distance(as); most.Less(size) {
		return p.Errorf(b.Pos, "", "%s is larger than a /%d, the largest prefix that the fleet lets its controller ban", what, widest)
	}
	return nil
}

func distance(r addrset.Range) addrset.Number {
	return addrset.NumberOf(r.To).Sub(addrset.NumberOf(r.From))
}

// MayAllow says why the fleet forbids its controller that somebody is let in, as
// [Policy.MayExcept] does for commands.
func (p *Policy) MayAllow(what addrset.Range, length time.Duration, inWho func(addrset.Range) (bool, error)) error {
	b := p.Fleet.Exceptions
	if b == nil {
		return p.Errorf(p.Fleet.Pos, "write exceptions: {who: [...], longest: 8h} in the file of the fleet and sign it", "the fleet does not let its controller make exceptions")
	}
	if length == 0 {
		return p.Errorf(b.Pos, "", "an exception by the controller needs an end")
	}
	return p.mayExcept(b, "by its controller", what, length, inWho)
}

// String is the bounds as the file of a fleet has them.
func (b *BanBounds) String() string {
	return fmt.Sprintf("{max: %d, for: %s, widest: [%s, %s]}", b.Max, formatDuration(b.For), strconv.Itoa(b.Widest4), strconv.Itoa(b.Widest6))
}
