package nfset

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"
)

// pairs makes elements of nodes. Nodes of interval sets come sorted: falling on
// kernels that keep them in a tree, the end of a range before its beginning; the
// other way round is understood as well.
type pairs struct {
	set    Set
	each   func(Element) error
	parser parser

	order order
	held  node // first, or when rising: the last node, whose neighbour is not known yet
	holds bool
	// Falling: the keys of the last two nodes.
	above, higher limit
	memory        [maxKey]byte // of held's key
	to            [maxKey]byte
}

type order uint8

const (
	unknown order = iota
	falling
	rising
)

// limit is the key of a node, or none.
type limit struct {
	key [maxKey]byte
	has bool
}

var errOrder = errors.New("the kernel gave the elements of an interval set in no order")

func (p *pairs) node(n node) error {
	e := n.Element
	e.Key = n.key
	switch {
	case n.flags&flagCatchAll != 0:
		e.Key, e.CatchAll = nil, true
		return p.each(e)
	case len(n.key) == 0:
		return errShort
	case p.set.Kind == Concatenated:
		if e.End = n.keyEnd; e.End == nil {
			e.End = n.key
		}
		return p.each(e)
	case p.set.Kind == Exact:
		return p.each(e)
	}
	if p.holds && len(p.held.key) != len(n.key) {
		return errKey
	}
	if p.order == unknown && p.holds {
		p.order = falling
		if bytes.Compare(n.key, p.held.key) > 0 {
			p.order = rising
		} else if err := p.fall(p.held); err != nil {
			return err
		}
	}
	switch p.order {
	case falling:
		if err := p.fall(n); err != nil {
			return err
		}
	case rising:
		if err := p.rise(&n); err != nil {
			return err
		}
	case unknown:
	}
	if p.order != falling || !p.holds {
		p.hold(n)
	}
	return nil
}

func (p *pairs) hold(n node) {
	n.key = p.memory[:copy(p.memory[:], n.key)]
	p.held, p.holds = n, true
}

func (n *node) isEnd() bool { return n.flags&unix.NFT_SET_ELEM_INTERVAL_END != 0 }

// fall takes a node that is below all others up to now, or beside the last.
func (p *pairs) fall(n node) error {
	size := len(n.key)
	if p.above.has && bytes.Compare(n.key, p.above.key[:size]) > 0 {
		return errOrder
	}
	if !n.isEnd() {
		behind := &p.above
		if behind.has && bytes.Equal(behind.key[:size], n.key) {
			behind = &p.higher // the last node is the end of the range below
		}
		var key []byte
		if behind.has {
			key = behind.key[:size]
		}
		if err := p.give(n, key); err != nil {
			return err
		}
	}
	p.higher = p.above
	copy(p.above.key[:], n.key)
	p.above.has = true
	return nil
}

// rise takes the node above the one that is held.
func (p *pairs) rise(n *node) error {
	c := bytes.Compare(n.key, p.held.key)
	switch {
	case c < 0:
		return errOrder
	case p.held.isEnd():
		return nil
	case c == 0:
		// The end of the range below: the one that is held goes on.
		*n = p.held
		return nil
	}
	return p.give(p.held, n.key)
}

// give gives the range from n's key to the one before behind; nil is the last
// key that there is.
func (p *pairs) give(n node, behind []byte) error {
	e := n.Element
	e.Key = n.key
	e.End = p.to[:len(n.key)]
	if behind == nil {
		for i := range e.End {
			e.End[i] = 0xff
		}
	} else if !before(e.End, behind) {
		return errOrder
	}
	return p.each(e)
}

// finish gives what is held when all nodes have come.
func (p *pairs) finish() error {
	if !p.holds || p.order == falling || p.held.isEnd() {
		return nil
	}
	return p.give(p.held, nil)
}
