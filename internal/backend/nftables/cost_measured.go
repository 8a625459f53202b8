package nftables

// Estimates of what things take in the kernel, measured on 6.18 by
//
//	go test ./internal/backend/nftables -run TestMeasureCost -measure -v
//
// which loads each layout twice, with different numbers of elements, and
// prints the difference per element, of MemAvailable and of the time that nft
// takes. An interval is one range: the kernel keeps two elements for it.
const (
	bytesPerRule           uint64 = 512
	bytesPerObject         uint64 = 256
	bytesPerSet            uint64 = 1024
	bytesPerHashElement    uint64 = 96
	bytesPerInterval       uint64 = 256
	bytesPerConcatElement  uint64 = 512
	bytesMoreForIPv6       uint64 = 32
	bytesPerElementCounter uint64 = 64
	bytesPerDynamicElement uint64 = 256

	loadTimeBase             uint64 = 10_000_000 // ns
	loadTimePerRule          uint64 = 20_000
	loadTimePerHashElement   uint64 = 4_000
	loadTimePerInterval      uint64 = 9_000
	loadTimePerConcatElement uint64 = 12_000
)
