// Package importer is the form in which rulesets of other tools are held against packets:
// a program, as that of a policy, and beside it what a program alone does not say: what
// each rule has counted, where it stands, and its text as its tool prints it. The readers
// below make it (xtables of what iptables-save prints, ipset of the sets that it names,
// nftables of what nft lists), and read texts alone: none asks a kernel. doctor asks what a host has loaded by it, whoever loaded that.
//
// What a program has no words for is never left out in silence: a condition becomes one
// of program.Opaque, which nobody proves; a verdict that others give is opaque as well;
// and either is in Ruleset.Unlifted, with the text and why. With which ICMP error a rule
// rejects is the one thing that is not told apart.
package importer

import (
	"fmt"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// Ruleset is what one tool has loaded for the packets of one family. Packets of others
// do not meet it: whoever asks its program asks of its own.
type Ruleset struct {
	Tool    string // "iptables-legacy", "iptables-nft", "nft"
	Family  string // as nft has it: "ip", "ip6"; of nft "inet" too, which is both, and others
	Table   string // of nft, where each is a ruleset of its own; "" is all of iptables
	Program *program.Program
	Bases   []Base           // as Program.Hooks
	Rules   map[string]*Rule // by the ID of the program's rules; all that the tool has
	Sets    []Set            // of nft all of the table, of iptables those of ipset that rules name
	// Unlifted is what the program does not say, by the program's chains.
	Unlifted []backend.Unlifted
}

// Set is how a tool has a set of addresses or other keys, beside what is in it.
type Set struct {
	Name    string
	Type    string // "hash:net,port" of ipset, "ipv4_addr" of nft
	Entries int
	Most    int  // entries that it may have, behind which no more are taken; 0: no bound, or it makes room
	Fills   bool // rules add to it, or its entries end by themselves
	// Lengths is how many lengths of prefixes the entries of a hash of ipset have: the
	// kernel looks up each of them.
	Lengths int
	// Ranges says of a set of nft of one part that it is made for ranges, a tree, and Single
	// that it has none but single addresses.
	Ranges, Single bool
}

// Base is a base chain. Those of one hook are asked in the order of their priorities.
type Base struct {
	Table, Chain string // as the tool has them
	Hook         program.HookKind
	Priority     int    // as nf_register_net_hook has it
	Count        *Count // what came to its end; nil: nobody counts
}

// Rule is a rule as its tool has it. One that no condition of a program says alone is
// several of the program, with one ID.
type Rule struct {
	Table, Chain string
	Number       int    // in its chain, from 1
	Line         int    // of the text that was read, from 1; 0 where it was no text
	Handle       uint64 // of nft
	Text         string // as the tool prints it, without counters
	Count        *Count // nil: nobody counts
	Whole        bool   // the program says all of it
}

// Count is what was counted.
type Count struct{ Packets, Bytes uint64 }

// Profile is how often each rule was hit, by the ID of the program's.
func (r *Ruleset) Profile() map[string]uint64 {
	out := map[string]uint64{}
	for id, rule := range r.Rules {
		if rule.Count != nil {
			out[id] = rule.Count.Packets
		}
	}
	return out
}

// SyntaxError is a text that the tool cannot have printed.
type SyntaxError struct {
	Line, Column int // from 1; a column counts bytes
	What         string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.What)
}
