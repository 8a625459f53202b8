package nftables

// What things take in the kernel, in bytes and nanoseconds, rounded up from
// what
//
//	go test ./internal/backend/nftables -run TestMeasureCost -measure -v
//
// printed on Linux 6.18 with nft 1.0.6, on two busy cores. It loads each layout
// with 8,192 and with 40,960 elements, and divides the difference in Slab and
// VmallocUsed of /proc/meminfo, and in the time that nft took. An interval is
// one range, for which the kernel keeps two elements. A set that is replaced is
// there twice until the old one is swept: that is the plan's to add.
const (
	bytesPerRule           uint64 = 700
	bytesPerObject         uint64 = 256
	bytesPerSet            uint64 = 1024
	bytesPerHashElement    uint64 = 100
	bytesPerInterval       uint64 = 160
	bytesPerConcatElement  uint64 = 256 // with the lookup tables, of which there are two while it is filled
	bytesMoreForIPv6       uint64 = 24
	bytesPerElementCounter uint64 = 56
	bytesPerDynamicElement uint64 = 192 // with the limit or count that it has in it

	loadTimeBase             uint64 = 20_000_000
	loadTimePerRule          uint64 = 40_000
	loadTimePerHashElement   uint64 = 5_000
	loadTimePerInterval      uint64 = 12_000
	loadTimePerConcatElement uint64 = 14_000
)
