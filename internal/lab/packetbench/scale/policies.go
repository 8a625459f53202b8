package scale

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"

	"sluice/internal/lab/packetbench"
)

// Dimension is what grows.
type Dimension struct {
	Name  string // "prefixes", "rules"
	Title string
	about string
	// sources of the packets, at most: what each is treated like is asked rule by rule
	// before.
	sources int
	kinds   []packetbench.Kind
	write   func(dir string, n int, seed uint64) (file string, err error)
}

// Prefixes and Rules are all dimensions.
var (
	Prefixes = Dimension{
		Name: "prefixes", Title: "What grows with the number of prefixes",
		about: "One set of so many IPv4 prefixes, of 23 to 30 bits and none beside another, which may reach the web; everybody else is dropped.",
		kinds: []packetbench.Kind{packetbench.Blocked, packetbench.Allowed, packetbench.Established}, write: writePrefixes,
	}
	Rules = Dimension{
		Name: "rules", Title: "What grows with the number of rules",
		about:   "So many rules: one half drops a source each, the other lets a source in to a port each. What is blocked fits none of them, what is allowed the first that allows, in the middle.",
		sources: 256, kinds: []packetbench.Kind{packetbench.Blocked, packetbench.Allowed, packetbench.Established}, write: writeRules,
	}
)

// Dimensions are all of them, by name.
var Dimensions = []Dimension{Prefixes, Rules}

// blocks are how many /22 of 1.0.0.0 to 223.255.255.255 there are.
const blocks = 223 << 14

// inBlocks calls f with the first address of n different /22s.
func inBlocks(n int, seed uint64, f func(netip.Addr, *rand.Rand)) {
	random := rand.New(rand.NewPCG(seed, 1))
	left := n
	for i := range blocks { // each of the n, in their order, with the same chance
		if random.IntN(blocks-i) >= left {
			continue
		}
		left--
		a := 1<<24 + uint32(i)<<10
		f(netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)}), random)
	}
}

func writePrefixes(dir string, n int, seed uint64) (string, error) {
	err := written(filepath.Join(dir, "served.txt"), func(w io.Writer) {
		inBlocks(n, seed, func(a netip.Addr, random *rand.Rand) {
			fmt.Fprintln(w, netip.PrefixFrom(a, 23+random.IntN(8)))
		})
	})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "prefixes.yaml")
	return file, os.WriteFile(file, []byte(`version: 1
sets:
  served: {file: served.txt}
input:
  default: drop
  rules:
    - allow [http, https] from served
`), 0o600)
}

func writeRules(dir string, n int, seed uint64) (string, error) {
	file := filepath.Join(dir, "rules.yaml")
	return file, written(file, func(w io.Writer) {
		fmt.Fprint(w, "version: 1\ninput:\n  default: drop\n  rules:\n")
		i := 0
		inBlocks(n, seed, func(a netip.Addr, random *rand.Rand) {
			a = a.Next() // not the network's own
			if i++; i <= n/2 {
				fmt.Fprintf(w, "    - drop any from %s\n", a)
			} else {
				fmt.Fprintf(w, "    - allow tcp/%d from %s\n", 1024+random.IntN(60000), a)
			}
		})
	})
}

func written(file string, write func(io.Writer)) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	write(w)
	if err := w.Flush(); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
