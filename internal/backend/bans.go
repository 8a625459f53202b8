package backend

import (
	"context"
	"net/netip"
	"time"

	"sluice/internal/base/addrset"
)

// Banner is a backend that holds what commands ban.
type Banner interface {
	// BanStore is the store of an artifact. Its rules ask what those of another store
	// do, or nothing where that is nil.
	BanStore(a Artifact, like BanStore) BanStore
	// BanStoreIn is the store of an artifact whose rules ask what those in the kernel
	// do.
	BanStoreIn(a Artifact, have State) BanStore
	// DecodeBanStore reads what BanStore.Encode wrote.
	DecodeBanStore(data []byte) (BanStore, error)
}

// BanStore is where the rules of an artifact look up what commands ban: in the kernel,
// in the network namespace of the calling thread. It knows what of it the rules ask:
// as the artifact was lowered they ask nothing, so that what is empty costs no packet
// anything.
type BanStore interface {
	// Encode writes the store as a JSON object, without members "format" and "mark".
	// To edit what is banned, neither the artifact nor its program is needed.
	Encode() ([]byte, error)
	// Room says whether the artifact has a place for bans at all.
	Room() bool
	// Never is what no ban reaches.
	Never() addrset.Set
	// Asking is the artifact with rules that ask what those of the store do.
	Asking(a Artifact) Artifact
	// Fill plans how the kernel comes to hold these bans and no others, before rules
	// are loaded anew that ask no more than what is banned.
	Fill(ctx context.Context, want Bans, now time.Time) (BanPlan, error)
	// Edit plans the same under the rules that run. What they ask they go on asking
	// when it is empty: bans that come and go must not turn rules over each time.
	Edit(ctx context.Context, e BanEdit, now time.Time) (BanPlan, error)
	// Held reads the bans that the kernel has, by commands as far as rules ask for
	// them, and by limits.
	Held(ctx context.Context) (*HeldBans, error)
	// LiftLimits lifts bans by limits, and says how many.
	LiftLimits(ctx context.Context, lift func(addrset.Range) bool) (int, error)
	// Unasked is what other hands have put where no rule asks for it, nor would for
	// what is banned.
	Unasked(ctx context.Context, want Bans) ([]UnaskedBans, error)
}

// Bans is what is banned at one time.
type Bans struct{ IPv4, IPv6 FamilyBans }

// FamilyBans is what is banned of one family.
type FamilyBans struct {
	Single map[netip.Addr]time.Time // addresses, until when; zero: until it is lifted
	Ranges []BannedRange            // others, disjoint and in order
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
	// All is all that is banned after the change, for where the change alone is not
	// enough to bring it about.
	All func() (Bans, error)
}

// BanPlan is how the kernel comes to hold bans.
type BanPlan struct {
	Fill  Transaction // nil: it holds them already
	Turn  Transaction // behind Fill, under rules that run; nil: they ask what they should
	After BanStore    // as rules ask it then
	// Differences is what Fill mends, for a reader.
	Differences []Difference
}

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
	Count
}

// LimitBans is what one rule or several banned by their limits.
type LimitBans struct {
	Rule string // the first one that bans, with its place
	Bans []HeldBan
}

// UnaskedBans is a place for single addresses that no rule asks, and what is there.
type UnaskedBans struct {
	Set       string // as the backend names it
	Addresses []netip.Addr
}
