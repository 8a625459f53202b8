package policy

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/addrset"
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
	const hint = "write widest: [24, 48], the lengths of a prefix of IPv4 and of one of IPv6"
	if n.Kind != yaml.SequenceNode || len(n.Content) != 2 {
		f.fail(f.At(n), hint, "widest is two lengths of prefixes")
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

// drift reads what becomes of rules that somebody changed on a host of a part.
func (f *file) drift(e source.Entry) {
	fleet := f.policy.Fleet
	if fleet == nil { // a part alone
		fleet = &Fleet{}
	}
	if f.Once(e, &fleet.Drift) {
		fleet.Restore = f.Either(e, "report", "restore")
	}
}

// MayBan says why the fleet forbids its controller a ban for a time, 0 being for good, as an
// *Error.
func (p *Policy) MayBan(what addrset.Range, length time.Duration) error {
	b := p.Fleet.Bans
	if b == nil {
		return p.Errorf(p.Fleet.Pos, "write bans: {} in the file of the fleet, and sign that", "the fleet lets its controller ban nobody")
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
		return p.Errorf(b.Pos, "", "%s has more addresses than a /%d, and the fleet lets its controller ban none that does", what, widest)
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
		return p.Errorf(p.Fleet.Pos, "write exceptions: {who: [...], longest: 8h} in the file of the fleet, and sign that", "the fleet lets its controller let nobody in")
	}
	if length == 0 {
		return p.Errorf(b.Pos, "", "whom the controller lets in, it lets in for a time")
	}
	return p.mayExcept(b, "by its controller", what, length, inWho)
}

// String is the bounds as the file of a fleet has them.
func (b *BanBounds) String() string {
	return fmt.Sprintf("{max: %d, for: %s, widest: [%s, %s]}", b.Max, formatDuration(b.For), strconv.Itoa(b.Widest4), strconv.Itoa(b.Widest6))
}
