package nftables

// What things take in the kernel, in bytes and nanoseconds, rounded from what
//
//	go test ./internal/backend/nftables -run TestMeasureCost -measure -v
//
// printed on Linux 6.18 with nft 1.0.6. It loads each kind of set with few and
// with many elements, and divides the difference in kernel memory, and in the
// processor's time that their way by netlink, or nft, took. An interval is one
// range, for which the kernel keeps two elements. A set that is replaced is there
// twice until the old one is swept: that is the plan's to add.
const (
	bytesPerRule           uint64 = 460
	bytesPerChain          uint64 = 260
	bytesPerSet            uint64 = 750
	bytesPerObject         uint64 = 256
	bytesPerElementCounter uint64 = 64
	bytesPerDynamicElement uint64 = 192 // with the limit or count that it has in it

	loadTimeBase     uint64 = 20_000_000
	loadTimePerRule  uint64 = 25_000
	loadTimePerChain uint64 = 6_000
	loadTimePerSet   uint64 = 12_000
	// Each element of a bitmap is compared with those that were there before.
	loadTimePerBitmapPair float64 = 4
)

// setCosts is what the kinds of sets take: bytes of one without elements, beside
// bytesPerSet, and bytes and nanoseconds of an element.
var setCosts = [...]struct{ bytes, bytesEach, nsEach uint64 }{
	kindHash:       {0, 88, 900},
	kindMap:        {0, 92, 1_000},
	kindBitmap:     {0, 72, 1_150},
	kindWideBitmap: {32 << 10, 72, 1_150},
	kindInterval:   {0, 144, 1_900},
	kindConcat:     {20 << 10, 584, 2_500}, // with the lookup tables, of which there are two while it is filled
}

// An interval set has a list of its intervals as well, of 16 bytes each, which
// is made larger than what it has to hold and takes a power of two.
const (
	bytesPerListed  = 16
	listedAtFirst   = 1024
	listedBeyond    = 1.33
	nsMoreForLonger = 150 // an element, for each time that a set of more than listedAtFirst doubles
)

// IPv6 keys of a large set are further apart in memory.
const longerForIPv6 = 2

const (
	leastBytesPerElement uint64 = 72
	leastTimePerElement  uint64 = 900
)

// What a lookup in a large set takes, in nanoseconds, from
//
//	go test ./internal/backend/nftables -run TestMeasureLookups -measure -v
//
// where a set is asked for all of its elements in turn. What a set is read of is
// one line of memory for each of its nodes, and half a bucket.
const (
	nsQuestion float64 = 10
	nsEnter    float64 = 20
	nsBitmap   float64 = 20

	bytesReadOfInterval float64 = 128
	bytesReadOfHash     float64 = 80
)

var (
	nsIntervals = []measured{{16, 110}, {256, 220}, {4096, 420}, {16384, 570}, {65536, 900}}
	nsHash      = []measured{{16, 25}, {256, 30}, {4096, 90}, {16384, 180}, {65536, 250}}
)

// What a packet pays for the parts of a program, in ns, rounded from what
//
//	go test ./internal/backend/nftables -run TestMeasurePacketCost -measure -v
//
// printed on Linux 6.18 with retpolines, on two busy cores: what the kernel
// evaluates without a call (comparing a number, nft_do_chain of
// net/netfilter/nf_tables_core.c) takes a quarter of what it calls.
const (
	packetBase     = 24.0 // a base chain, its hook included
	packetCompare  = 10.0 // load a field and compare it with a number
	packetName     = 35.0 // with the name of an interface
	packetRange    = 35.0 // with a range, or under a mask that is not of whole bytes
	packetSome     = 45.0 // with some values, in a set of the rule's own
	packetHash     = 65.0 // look up one exact value, or several together
	packetInterval = 50.0 // look up in an interval set
	packetHalve    = 32.0 // and for each time that its size doubles
	packetRoute    = 100.0
	packetJump     = 12.0
	packetCounter  = 20.0
	packetLimit    = 80.0
	packetBucket   = 170.0 // of a source
	packetTracked  = 300.0 // count the connections of a source
	packetRewrite  = 30.0
)
