package nftables

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// Memory keeps what the search for layouts found, which takes longer than all
// else that a policy is compiled in. What it gives is either what was put in
// under the key or nothing.
type Memory interface {
	Get(key string) ([]byte, bool)
	Put(key string, data []byte)
}

// Remembering is New with a memory. It must forget when the program becomes
// another one: the candidates and what they cost are in its code.
func Remembering(m Memory) backend.Backend { return nftables{table: Table, memory: m} }

// key tells one search from all others of the same program.
func (x *largeSet) key(budget program.Layout) string {
	h := sha256.New()
	_ = allAddresses(x.set).WriteRanges(h) // never fails, says package hash
	return fmt.Sprintf("layouts of %x, family %d, uses %d, limit %d, memory %d, load %d",
		h.Sum(nil), x.family, x.uses, x.limit(budget), budget.Memory, budget.Load)
}

// recall takes what an earlier search found; false where there was none.
func (x *largeSet) recall(m Memory, budget program.Layout) bool {
	if m == nil {
		return false
	}
	data, ok := m.Get(x.key(budget))
	if !ok || json.Unmarshal(data, &x.costs) != nil || len(x.costs) != len(candidates[x.family]) {
		x.costs = nil
		return false
	}
	return true
}

func (x *largeSet) remember(m Memory, budget program.Layout) {
	if m == nil {
		return
	}
	if data, err := json.Marshal(x.costs); err == nil {
		m.Put(x.key(budget), data)
	}
}
