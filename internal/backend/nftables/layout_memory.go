package nftables

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
)

// Memory keeps what the search for layouts found, which takes longer than all
// else that a policy is compiled in. What it gives is either what was put in
// under the key or nothing.
type Memory interface {
	Get(key string) ([]byte, bool)
	Put(key string, data []byte)
}

// process is a memory of this process alone, before another one, which may be nil.
type process struct {
	behind Memory
	lock   sync.Mutex
	found  map[string][]byte
}

func (p *process) Get(key string) ([]byte, bool) {
	p.lock.Lock()
	data, ok := p.found[key]
	p.lock.Unlock()
	if !ok && p.behind != nil {
		return p.behind.Get(key)
	}
	return data, ok
}

func (p *process) Put(key string, data []byte) {
	p.lock.Lock()
	if p.found == nil {
		p.found = map[string][]byte{}
	}
	p.found[key] = data
	p.lock.Unlock()
	if p.behind != nil {
		p.behind.Put(key, data)
	}
}

// key tells one estimate from all others.
func (x *largeSet) key() string {
	h := sha256.New()
	_ = allAddresses(x.set).WriteRanges(h) // never fails, says package hash
	return fmt.Sprintf("layouts of %x, costs %x, family %d, uses %d", h.Sum(nil), x.model.sum(), x.family, x.uses)
}

// recall takes what an earlier search found; false where there was none.
func (x *largeSet) recall(m Memory) bool {
	if m == nil {
		return false
	}
	data, ok := m.Get(x.key())
	if !ok || json.Unmarshal(data, &x.costs) != nil || len(x.costs) != len(candidates[x.family]) {
		x.costs = nil
		return false
	}
	return true
}

func (x *largeSet) remember(m Memory) {
	if m == nil {
		return
	}
	if data, err := json.Marshal(x.costs); err == nil {
		m.Put(x.key(), data)
	}
}
