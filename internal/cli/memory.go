package cli

import (
	"strings"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/base/cache"
)

// layouts is the part of the cache where the backend keeps what its search for
// layouts found, and what programs with such sets were lowered to; it is of this
// program alone, whose code that is.
type layouts struct {
	cache   cache.Cache
	program string
}

func (l layouts) Get(key string) ([]byte, bool) { return l.cache.Get(kindOf(key), l.program+"\n"+key) }

func (l layouts) Put(key string, data []byte) { l.cache.Put(kindOf(key), l.program+"\n"+key, data) }

// kindOf is the first word of a key: of each kind some entries are kept.
func kindOf(key string) string {
	kind, _, _ := strings.Cut(key, " ")
	return kind
}

// nftables is the backend, with a memory where there is a state directory.
func (o options) nftables(more ...nftables.Option) backend.Backend {
	program, err := thisProgram()
	if err != nil {
		return nftables.New(more...)
	}
	return nftables.New(append(more, nftables.Remember(layouts{cache.Below(o.stateDir), program}))...)
}
