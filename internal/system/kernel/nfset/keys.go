package nfset

import (
	"hash/maphash"
	"slices"
)

// keys knows whether a key came twice. Of two in 2^64 it takes one for the
// other.
type keys struct {
	seed   maphash.Seed
	hashes []uint64
}

// noting is each with a note of every key.
func (k *keys) noting(each func(Element) error) func(Element) error {
	k.seed = maphash.MakeSeed()
	return func(e Element) error {
		k.hashes = append(k.hashes, maphash.Bytes(k.seed, e.Key))
		return each(e)
	}
}

func (k *keys) twice() bool {
	slices.Sort(k.hashes)
	for i := 1; i < len(k.hashes); i++ {
		if k.hashes[i] == k.hashes[i-1] {
			return true
		}
	}
	return false
}
