package geo

import _ "embed"

//go:generate sh ../../../scripts/fetch-geo-data
//go:generate go run ./gen -o snapshot.bin

// snapshot is made by ./gen from the CC0 dataset geo-whois-asn-country; what it
// is made of, its date and its terms are in its header.
//
//go:embed snapshot.bin
var snapshot []byte

// Snapshot returns the built-in data, so that the first run needs no network.
func Snapshot() (*Database, error) { return Decode(snapshot) }
