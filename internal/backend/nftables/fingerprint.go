package nftables

import (
	"sluice/internal/backend"
	"sluice/internal/system/kernel/nft"
)

// Fingerprint is the number of the whole ruleset, which every transaction of anybody
// raises by one. What packets and time do to it (elements that limits add, bans that
// expire) does not.
func (nftables) Fingerprint() (backend.Fingerprint, error) {
	n, own, err := nft.State()
	return backend.Fingerprint{Number: n, Own: own}, err
}

// Connect keeps sockets open.
func (nftables) Connect() (end func()) { return nft.Keep() }
