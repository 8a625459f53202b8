package live

import (
	"time"

	"sluice/internal/system/kernel/nft"
	"sluice/internal/system/kernel/nftrace"
	"sluice/internal/system/kernel/wire"
)

// Each packet of the host pays for the question whether it is followed, two thirds of what a
// dropped one costs. In a flood it is asked for a thirtieth of the time.
const (
	calm   = time.Second            // between two looks where there is none
	marked = 100 * time.Millisecond // between two rests
	rest   = 3 * time.Second
)

// flood is from how many packets a second on the marking rests.
var flood = 50_000.0

// marking is the table that marks packets.
type marking struct {
	*nftrace.Marking
	packets      uint64 // when it was looked last
	looked, next time.Time
	rests        bool
}

// bound has the marking rest while there is a flood.
func (x *sample) bound(m *marking, now time.Time) error {
	if now.Before(m.next) {
		return nil
	}
	packets, err := handled()
	if err != nil {
		return err
	}
	flooded := !m.rests && float64(packets-m.packets) >= flood*now.Sub(m.looked).Seconds()
	switch {
	case flooded:
		err = x.own(m.Rest)
		m.next = now.Add(rest)
	case m.rests:
		err = x.own(m.Resume)
		m.next = now.Add(marked)
	default:
		m.next = now.Add(calm)
	}
	m.rests, m.packets, m.looked = flooded, packets, now
	return err
}

// own makes a transaction that changes none of the rules that were read.
func (x *sample) own(transaction func() error) error {
	before, err := nft.Generation()
	if err != nil {
		return err
	}
	if err := transaction(); err != nil {
		return err
	}
	after, err := nft.Generation()
	if err == nil && x.at == before && after == before+1 {
		x.at = after
	}
	return err
}

// handled are the packets that the network namespace has received and sent.
func handled() (n uint64, err error) {
	counters, err := wire.Counters()
	for _, name := range []string{"Ip.InReceives", "Ip.OutRequests", "Ip6InReceives", "Ip6OutRequests"} {
		n += counters[name]
	}
	return n, err
}
