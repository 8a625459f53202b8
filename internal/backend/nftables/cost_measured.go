package nftables

// What things take in the kernel, in bytes and nanoseconds, rounded up from
// what
//
//	go test ./internal/backend/nftables -run TestMeasureCost -measure -v
//
// printed on Linux 6.18 with nft 1.0.6, on two busy cores. It loads each kind of
// set with 8,192 and with 40,960 elements, and divides the difference in Slab and
// VmallocUsed of /proc/meminfo, and in the time that their way by netlink took.
// An interval is one range, for which the kernel keeps two elements. A set that
// is replaced is there twice until the old one is swept: that is the plan's to
// add.
const (
	bytesPerRule           uint64 = 700
	bytesPerChain          uint64 = 700
	bytesPerObject         uint64 = 256
	bytesMoreForIPv6       uint64 = 24
	bytesPerElementCounter uint64 = 56
	bytesPerDynamicElement uint64 = 192 // with the limit or count that it has in it

	loadTimeBase     uint64 = 20_000_000
	loadTimePerRule  uint64 = 40_000
	loadTimePerChain uint64 = 30_000
	loadTimePerSet   uint64 = 40_000
	// Each element of a bitmap is compared with those that were there before.
	loadTimePerBitmapPair float64 = 5
)

// setCosts is what the kinds of sets take: bytes of one without elements, and
// bytes and nanoseconds of an element.
var setCosts = [...]struct{ bytes, bytesEach, nsEach uint64 }{
	kindHash:       {1024, 100, 2_000},
	kindMap:        {1024, 150, 2_500},
	kindBitmap:     {1024, 64, 1_500},
	kindWideBitmap: {1024 + 16384, 64, 1_500},
	kindInterval:   {1024, 160, 4_000},
	kindConcat:     {1024, 256, 14_000}, // with the lookup tables, of which there are two while it is filled
}

const (
	leastBytesPerElement uint64 = 64
	leastTimePerElement  uint64 = 800
)

// What a packet pays, in nanoseconds,
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
