package nftables

import (
	"crypto/sha256"
	"encoding/json"
	"math"
)

// CostModel is what things take in the kernel, and of a packet's time: what all
// costs that this backend tells are made of, and what it chooses layouts by. It is
// in the hands of whoever makes the backend ([Costs]); package calibrate measures
// one on a host. Bytes are of kernel memory, ns of processor time. Names of JSON
// end in the unit; the comment behind a name describes the figure, where * is the
// subject of its struct. See [Constants].
type CostModel struct {
	Memory MemoryCosts `json:"memory"`
	Load   LoadCosts   `json:"load"`
	Sets   SetKinds    `json:"sets"`
	Lookup LookupCosts `json:"lookup"`
	Packet PacketCosts `json:"packet"`
}

// MemoryCosts is the kernel memory of what a table holds beside its sets' elements.
type MemoryCosts struct {
	Rule           float64 `json:"rule-bytes" what:"a rule with its comment"`
	Chain          float64 `json:"chain-bytes" what:"a chain without rules"`
	Set            float64 `json:"set-bytes" what:"a set without elements"`
	Object         float64 `json:"object-bytes" what:"a named counter or limit"`
	ElementCounter float64 `json:"element-counter-bytes" what:"what counting adds to an element"`
	// 20 bytes (struct nft_userdata and the attribute in it), in steps of the kernel's
	// slab caches.
	ElementComment float64 `json:"element-comment-bytes" what:"what the name of a rule's counter adds to an element"`
	// With the limit or count that it has in it.
	DynamicElement float64 `json:"dynamic-element-bytes" what:"a source in the table of a limit"`
}

// LoadCosts is the time that a load takes, nft's own included.
type LoadCosts struct {
	Base  float64 `json:"base-ns" least:"1000" what:"loading a policy without rules"`
	Rule  float64 `json:"rule-ns" what:"loading a rule"`
	Chain float64 `json:"chain-ns" what:"loading a chain"`
	Set   float64 `json:"set-ns" what:"loading a set without elements"`
	// The kernel compares each element with all that were there before.
	BitmapPair float64 `json:"bitmap-pair-ns" least:"0" what:"comparing two elements of a bitmap while it is filled"`
	// Large is a set of more than 1,024; IPv6 keys are further apart in memory.
	Longer4 float64 `json:"interval-doubled-ipv4-ns" least:"0" what:"an element more for each doubling of a large interval set, IPv4"`
	Longer6 float64 `json:"interval-doubled-ipv6-ns" least:"0" what:"the same, IPv6"`
}

// SetKinds are the ways in which the kernel keeps sets. An element of an interval
// set is one range, for which the kernel keeps two. A concatenated one has lookup
// tables, of which there are two while it is filled.
type SetKinds struct {
	Hash          SetCosts `json:"hash" what:"a hash set"`
	Map           SetCosts `json:"verdict-map" what:"a verdict map"`
	Bitmap        SetCosts `json:"bitmap-1-byte" what:"a bitmap of 1 byte"`
	WideBitmap    SetCosts `json:"bitmap-2-bytes" what:"a bitmap of 2 bytes"`
	Interval      SetCosts `json:"interval" what:"an interval set"`
	Concatenation SetCosts `json:"concatenation" what:"a concatenated interval set"`
}

// SetCosts is what a set of one kind takes.
type SetCosts struct {
	Empty   float64 `json:"empty-bytes" least:"0" what:"* without elements, beyond any set"`
	Element float64 `json:"element-bytes" what:"an element of *"`
	Load    float64 `json:"element-ns" what:"loading an element of *"`
}

// LookupCosts is what a question adds to a packet where sets are large and all of
// their elements are asked for in turn, so that they are far away.
type LookupCosts struct {
	Question float64 `json:"question-ns" what:"a rule that asks for a part of an address"`
	Enter    float64 `json:"enter-ns" what:"going into another chain by a verdict map"`
	Bitmap   float64 `json:"bitmap-ns" what:"a lookup in a bitmap"`
	Interval Curve   `json:"interval-set" what:"an interval set"`
	Hash     Curve   `json:"hash-set" what:"a hash set"`
}

// Curve is what a lookup costs in a set of so many elements; between them it is
// taken to rise evenly with each doubling.
type Curve struct {
	Of16    float64 `json:"of-16-ns" what:"a lookup in * of 16, all asked for in turn"`
	Of256   float64 `json:"of-256-ns" what:"a lookup in * of 256, all asked for in turn"`
	Of4096  float64 `json:"of-4096-ns" what:"a lookup in * of 4096, all asked for in turn"`
	Of16384 float64 `json:"of-16384-ns" what:"a lookup in * of 16384, all asked for in turn"`
	Of65536 float64 `json:"of-65536-ns" what:"a lookup in * of 65536, all asked for in turn"`
}

// PacketCosts is what a packet costs for the parts of a program where what they ask
// is near in the caches.
type PacketCosts struct {
	Base     float64 `json:"base-chain-ns" what:"entering a base chain"` // its hook included
	Compare  float64 `json:"compare-ns" what:"comparing a field with a number"`
	Name     float64 `json:"name-ns" what:"comparing the name of an interface"`
	Range    float64 `json:"range-ns" what:"comparing a field with a range"`    // or under a mask that is not of whole bytes
	Some     float64 `json:"some-ns" what:"comparing a field with some values"` // in a set of the rule's own
	Hash     float64 `json:"hash-ns" what:"a lookup in a hash set"`             // of one exact value, or several together
	Interval float64 `json:"interval-ns" what:"a lookup in the smallest interval set"`
	Halve    float64 `json:"interval-doubled-ns" what:"and for each time that its size doubles"`
	Route    float64 `json:"route-ns" what:"asking the routing table, IPv4"`
	Route6   float64 `json:"route-ipv6-ns" what:"asking the routing table, IPv6"`
	Jump     float64 `json:"jump-ns" what:"going into another chain and back"`
	Counter  float64 `json:"counter-ns" what:"counting"`
	Limit    float64 `json:"limit-ns" what:"asking a limit"`
	Bucket   float64 `json:"bucket-ns" what:"asking the limit of a source"`
	Tracked  float64 `json:"tracked-ns" what:"counting the connections of a source"`
	Mark     float64 `json:"mark-ns" what:"setting a mark"`       // or leaving out of tracking
	Rewrite  float64 `json:"rewrite-ns" what:"rewriting a field"` // an address or another one, with its checksum
}

// DefaultCosts is the model where nobody has measured the host: rounded from what
//
//	sluice-lab bench calibrate
//
// measures, on Linux 6.18 with nft 1.0.6, with retpolines, on two busy cores.
func DefaultCosts() CostModel {
	return CostModel{
		Memory: MemoryCosts{Rule: 460, Chain: 260, Set: 750, Object: 400, ElementCounter: 64, ElementComment: 32, DynamicElement: 192},
		Load:   LoadCosts{Base: 20_000_000, Rule: 25_000, Chain: 6_000, Set: 12_000, BitmapPair: 4, Longer4: 150, Longer6: 300},
		Sets: SetKinds{
			Hash:          SetCosts{0, 88, 900},
			Map:           SetCosts{0, 92, 1_000},
			Bitmap:        SetCosts{0, 72, 1_150},
			WideBitmap:    SetCosts{32 << 10, 72, 1_150},
			Interval:      SetCosts{0, 144, 1_900},
			Concatenation: SetCosts{128 << 10, 584, 4_000},
		},
		Lookup: LookupCosts{
			Question: 10, Enter: 20, Bitmap: 20,
			Interval: Curve{110, 220, 420, 570, 900},
			Hash:     Curve{25, 30, 90, 180, 250},
		},
		Packet: PacketCosts{
			Base: 24, Compare: 10, Name: 35, Range: 35, Some: 45, Hash: 65, Interval: 50, Halve: 32,
			Route: 100, Route6: 360, Jump: 12, Counter: 20, Limit: 80, Bucket: 170, Tracked: 300, Mark: 15, Rewrite: 170,
		},
	}
}

// curveSizes are the sizes of a curve's points.
var curveSizes = [...]float64{16, 256, 4096, 16384, 65536}

func (c *Curve) points() [len(curveSizes)]float64 {
	return [...]float64{c.Of16, c.Of256, c.Of4096, c.Of16384, c.Of65536}
}

// at is the cost in a set of n.
func (c *Curve) at(n float64) float64 {
	ns := c.points()
	i := 1
	for i < len(ns)-1 && curveSizes[i] < n {
		i++
	}
	from, to := math.Log2(curveSizes[i-1]), math.Log2(curveSizes[i])
	at := (math.Log2(max(n, curveSizes[0])) - from) / (to - from)
	return ns[i-1] + at*(ns[i]-ns[i-1])
}

// step is what each doubling costs in small sets.
func (c *Curve) step() float64 {
	return (c.Of256 - c.Of16) / (math.Log2(curveSizes[1]) - math.Log2(curveSizes[0]))
}

// sum tells one model from another.
func (m *CostModel) sum() [8]byte {
	text, _ := json.Marshal(m) // numbers alone
	whole := sha256.Sum256(text)
	return [8]byte(whole[:8])
}
