package backend

import (
	"context"
	"net/netip"
	"time"

	"sluice/internal/base/addrset"
)

// Banner is a backend that holds what commands ban.
type Banner interface {
	// BanStore is the store of an artifact. Its rules look up bans in the same sets as
	// those of another store; where that is nil, in none.
	BanStore(a Artifact, like BanStore) BanStore
	// BanStoreIn is the store of an artifact whose rules look up bans in the same sets
	// as those in the kernel.
	BanStoreIn(a Artifact, have State) BanStore
	// DecodeBanStore reads what BanStore.Encode wrote.
	DecodeBanStore(data []byte) (BanStore, error)
}

// BanStore is where the rules of an artifact look up what commands ban: in the kernel,
// in the network namespace of the calling thread. It knows which of its sets the rules
// look into: none in the artifact as it was lowered, so that empty sets cost packets
// nothing.
type BanStore interface {
	// Encode writes the store as a JSON object, without members "format" and "mark".
	// To edit what is banned, neither the artifact nor its program is needed.
	Encode() ([]byte, error)
	// Room says whether the artifact has a place for bans at all.
	Room() bool
	// Never is what no ban reaches.
	Never() addrset.Set
	// Same says whether another store has the same sets, of which rules ask the same, and
	// spares the same.
	Same(BanStore) bool
	// AskedIn says whether rules in the kernel look into the same sets.
	AskedIn(have State) bool
	// Holding is what the sets of single addresses that rules ask hold where they hold
	// these bans.
	Holding(want Bans) ReadBans
	// Asking is the artifact with rules that look into the sets of this store.
	Asking(a Artifact) Artifact
	// Fill plans how the kernel comes to hold these bans and no others, before rules
	// are loaded that look only into sets with bans in them.
	Fill(ctx context.Context, want Bans, now time.Time) (BanPlan, error)
	// Edit plans the same for the rules that run. These keep looking into a set that
	// becomes empty: bans that come and go must not change the rules each time.
	Edit(ctx context.Context, e BanEdit, now time.Time) (BanPlan, error)
	// Held reads the bans in the kernel: those by commands in the sets that rules look
	// into, and those by limits.
	Held(ctx context.Context) (*HeldBans, error)
	// Limits reads those by limits alone.
	Limits(ctx context.Context) ([]LimitBans, error)
	// LiftLimits lifts bans by limits, and says how many.
	LiftLimits(ctx context.Context, lift func(addrset.Range) bool) (int, error)
	// Unasked is what somebody else put into sets that no rule looks into, nor would
	// look into for the bans that there are.
	Unasked(ctx context.Context, want Bans) ([]UnaskedBans, error)
}

// Bans is what is banned at one time.
type Bans struct{ IPv4, IPv6 FamilyBans }

// FamilyBans is what is banned of one family.
type FamilyBans struct {
	Single []BannedAddress // in order
	Ranges []BannedRange   // others, disjoint and in order
}

// BannedAddress is an address that is banned until a time, zero: until it is lifted.
type BannedAddress struct {
	netip.Addr
	Until time.Time
}

// BannedRange is a range that is banned until a time, zero: until it is lifted.
type BannedRange struct {
	addrset.Range
	Until time.Time
}

// Of is what is banned of family 4 or 6.
func (b *Bans) Of(family int) *FamilyBans {
	if family == 4 {
		return &b.IPv4
	}
	return &b.IPv6
}

// Len counts them.
func (b *Bans) Len() int {
	return len(b.IPv4.Single) + len(b.IPv4.Ranges) + len(b.IPv6.Single) + len(b.IPv6.Ranges)
}

// BanEdit is a change of what is banned.
type BanEdit struct {
	Add  []BannedRange
	Lift []addrset.Range
	// Doubt says that the kernel may not hold all that was banned before.
	Doubt bool
	// All is everything that is banned after the change, for where the change alone
	// does not do.
	All func() (Bans, error)
}

// BanPlan is how the kernel comes to hold bans.
type BanPlan struct {
	Fill  Transaction // nil: it holds them already
	Turn  Transaction // behind Fill, under rules that run; nil: they ask what they should
	End   Transaction // behind both: ends flows that pass rules by; nil: there are none that it matters to
	After BanStore    // as rules ask it then
	// Differences is what Fill fixes, for a reader.
	Differences []Difference
	Read        ReadBans // on the way; nothing of what Fill and Turn do
}

// ReadBans is what sets of single addresses in the kernel hold, by the backend's name of
// the set: of those that were read.
type ReadBans map[string]addrset.Set

// HeldBans is what the kernel has of bans.
type HeldBans struct {
	Single map[netip.Addr]HeldBan
	Ranges []HeldBan // in order
	Limits []LimitBans
}

// HeldBan is a ban with what it has refused since it came there.
type HeldBan struct {
	addrset.Range
	Left time.Duration // 0 where it holds until it is lifted
	Age  time.Duration // of a ban by a limit; 0 where it is not known
	Count
}

// LimitBans is what one rule or several banned by their limits.
type LimitBans struct {
	Rule string // the first one that bans, with its place
	// Widened says that these are prefixes of which many sources were banned.
	Widened bool
	Bans    []HeldBan
}

// UnaskedBans is a set of single addresses that no rule looks into, and what is in it.
type UnaskedBans struct {
	Set       string // as the backend names it
	Addresses []netip.Addr
}
