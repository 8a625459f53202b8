package drops

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Functions names the kernel's functions that addresses are in, as /proc/kallsyms
// has them; one that it does not say is left out. Each is the address that a call
// returns to. It reads the list once: ask for many at a time.
func Functions(addresses ...uint64) (map[uint64]string, error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := functions(f, addresses)
	if err != nil {
		return nil, fmt.Errorf("read /proc/kallsyms: %w", err)
	}
	return names, nil
}

// functions finds, for each address, the last symbol before it. The list is not in
// order: modules and BPF programs come behind the kernel.
func functions(list io.Reader, addresses []uint64) (map[uint64]string, error) {
	type symbol struct {
		at   uint64
		name string
	}
	addresses = slices.Sorted(slices.Values(addresses))
	// By place in addresses: the last symbol before each that is not before the address
	// in front of it.
	best := make([]symbol, len(addresses))
	in := bufio.NewScanner(list)
	in.Buffer(make([]byte, 1<<16), 1<<16)
	for in.Scan() {
		line := in.Bytes()
		// "ffffffff81000000 T name	[module]"
		if len(line) < 20 || !strings.ContainsRune("tTwW", rune(line[17])) {
			continue
		}
		at, err := strconv.ParseUint(string(line[:16]), 16, 64)
		if err != nil || at == 0 { // the reader may not see addresses
			continue
		}
		i, is := slices.BinarySearch(addresses, at)
		for is && i < len(addresses) && addresses[i] == at {
			i++
		}
		if i < len(addresses) && at > best[i].at {
			best[i] = symbol{at, string(line[19:])}
		}
	}
	out := map[uint64]string{}
	last := symbol{}
	for i, a := range addresses {
		if best[i].at > 0 {
			last = best[i]
		}
		if last.at > 0 {
			name, _, _ := strings.Cut(last.name, "\t")
			name, _, _ = strings.Cut(name, ".") // a copy that the compiler made: ".isra.0", ".cold"
			out[a] = name
		}
	}
	return out, in.Err()
}

// Names are those of functions, each looked up once. The zero value knows none. It is not
// safe for concurrent use.
type Names struct{ known map[uint64]string }

// Learn looks up what is not known yet.
func (n *Names) Learn(addresses []uint64) error {
	var anew []uint64
	for _, a := range addresses {
		if _, known := n.known[a]; !known && !slices.Contains(anew, a) {
			anew = append(anew, a)
		}
	}
	if len(anew) == 0 {
		return nil
	}
	found, err := Functions(anew...)
	if n.known == nil || len(n.known) > places {
		n.known = map[uint64]string{}
	}
	for _, a := range anew {
		n.known[a] = cmp.Or(found[a], fmt.Sprintf("%#x", a))
	}
	return err
}

// Of is the name of a function that an address is in, or the address.
func (n *Names) Of(address uint64) string {
	return cmp.Or(n.known[address], fmt.Sprintf("%#x", address))
}
