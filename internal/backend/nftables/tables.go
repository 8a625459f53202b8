package nftables

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// What is for packets of one family alone may be in a table of that family, of the
// same name as the one of family inet: a NAT chain of family inet has the kernel enter
// what it translates, or that it translates nothing, for each new flow of both. Names
// say where things are: those in the table of a family begin with it, so that no two
// things of a tree have one name.

// inet is the family of the table that is always there.
const inet = "inet"

// tableFamilies are the families of tables, in the order in which they are written.
var tableFamilies = []string{inet, "ip", "ip6"}

// withFamily is the name of something in the table of a family.
func withFamily(family int, name string) string { return ipOf(family) + "/" + name }

// cutFamily gives the family of the table that something of a name is in, and the rest
// of the name.
func cutFamily(name string) (family, rest string) {
	for _, family := range tableFamilies[1:] {
		if rest, is := strings.CutPrefix(name, family+"/"); is {
			return family, rest
		}
	}
	return inet, name
}

// bare is a name without the family of its table.
func bare(name string) string {
	_, rest := cutFamily(name)
	return rest
}

func tableFamily(name string) string {
	family, _ := cutFamily(name)
	return family
}

// packetFamily is the family of the packets that a chain sees; 0 is both.
func packetFamily(chain string) int { return map[string]int{"ip": 4, "ip6": 6}[tableFamily(chain)] }

// nfprotoOf is how the kernel numbers the family of a table.
func nfprotoOf(family string) uint8 {
	return map[string]uint8{inet: unix.NFPROTO_INET, "ip": unix.NFPROTO_IPV4, "ip6": unix.NFPROTO_IPV6}[family]
}

// place is where something of a name is, for nft.
func place(table, name string) string { return tableFamily(name) + " " + table + " " + name }

// families are those of the tables that a tree has.
func (t *Tree) families() []string {
	has := map[string]bool{inet: true}
	for _, c := range t.Counters {
		has[tableFamily(c.Name)] = true
	}
	for _, x := range t.Limits {
		has[tableFamily(x.Name)] = true
	}
	for _, k := range t.Sets {
		has[tableFamily(k.Name)] = true
	}
	for _, c := range t.Chains {
		has[tableFamily(c.Name)] = true
	}
	return slices.DeleteFunc(slices.Clone(tableFamilies), func(f string) bool { return !has[f] })
}
