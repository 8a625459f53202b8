package cli

import (
	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/cache"
)

// layouts is the part of the cache where the backend keeps what its search for
// layouts found; it is of this program alone, whose code the search is.
type layouts struct {
	cache   cache.Cache
	program string
}

const layoutsKind = "layouts"

func (l layouts) Get(key string) ([]byte, bool) { return l.cache.Get(layoutsKind, l.program+"\n"+key) }
func (l layouts) Put(key string, data []byte)   { l.cache.Put(layoutsKind, l.program+"\n"+key, data) }

// nftables is the backend, with a memory where there is a state directory.
func (o options) nftables() backend.Backend {
	program, err := thisProgram()
	if err != nil {
		return nftables.New()
	}
	return nftables.Remembering(layouts{cache.Below(o.stateDir), program})
}
