package engine

import (
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/base/cache"
)

// Backend is the one that loads policies, with a memory in the state directory and the
// figures that it chooses layouts by.
func Backend(state, version string, costs Costs) backend.Backend {
	options := costs.Options()
	if program, err := thisProgram(version); err == nil {
		options = append(options, nftables.Remember(layouts{cache.Below(state), program}))
	}
	return nftables.New(options...)
}

// Capabilities is what the kernel can do, asked unless the state directory remembers it.
func Capabilities(ctx context.Context, state string) backend.Capabilities {
	return backend.Remembered(ctx, cache.Below(state), nftables.New())
}

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

// thisProgram tells the file that runs from every other one: two builds may have
// one version.
func thisProgram(version string) (string, error) {
	name, err := os.Executable()
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return "", err
	}
	return fmt.Sprintf("%q %s %d %d %d %d %d", name, version, st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()), nil
}
