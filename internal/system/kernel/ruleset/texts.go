package ruleset

import (
	"context"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	kernel "sluice/internal/system/kernel/nft"
)

// Text is what a tool prints of what it has loaded.
type Text struct {
	Tool   string // "iptables-legacy", "iptables-nft" with counters; "ipset"; "nft" of a table
	Family int    // 4 or 6; 0 is both
	Text   []byte
	JSON   []byte // of nft: the same, and what is in sets
	// Shared says of a table of nft that iptables over it has printed its own chains of
	// that, too: see Builtin.
	Shared bool
}

// xtablesTables are the tables that iptables over nftables makes.
var xtablesTables = []string{"raw", "mangle", "nat", "filter", "security"}

// xtablesFamilies are the families of those tables, as Text has them.
var xtablesFamilies = map[int]uint8{4: unix.NFPROTO_IPV4, 6: unix.NFPROTO_IPV6}

// Texts gives what iptables, legacy and over nftables, ipset and nft have loaded in the
// network namespace of the calling thread, as they save it, but nftables' tables of the
// names own. Sets come before the rules that name them. A tool is run where the kernel has
// something of it and not otherwise. An error names what was not read; the rest is there
// anyway.
func Texts(ctx context.Context, own ...string) (texts []Text, errs []error) {
	texts, tables, shared, errs := xtables(ctx)
	for _, t := range tables {
		if slices.Contains(own, t.Name) {
			continue
		}
		text, listing, err := listed(ctx, kernel.Families[t.Family], t.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		texts = append(texts, Text{Tool: "nft", Text: text, JSON: listing, Shared: shared[t]})
	}
	return texts, errs
}

// Xtables is Texts without those of nft.
func Xtables(ctx context.Context) (texts []Text, errs []error) {
	texts, _, _, errs = xtables(ctx)
	return texts, errs
}

// xtables gives the texts of iptables and ipset, and the tables that are nft's to list, with
// those of them that are shared.
func xtables(ctx context.Context) (texts []Text, tables []kernel.Named, shared map[kernel.Named]bool, errs []error) {
	add := func(t Text, err error) bool {
		if err != nil {
			errs = append(errs, err)
			return false
		}
		texts = append(texts, t)
		return true
	}
	// The kernel tells every namespace whether it has the code at all.
	if _, err := os.Stat("/sys/module/ip_set"); err == nil && installed("ipset") {
		text, err := printed(ctx, "ipset", "save")
		add(Text{Tool: "ipset", Text: text}, err)
	}
	for i, l := range legacies {
		there, err := legacyTables(l.names)
		if err != nil {
			errs = append(errs, err)
		} else if there {
			text, err := printed(ctx, saveProgram(ctx, l.program, "legacy"), "-c")
			add(Text{Tool: "iptables-legacy", Family: 4 + 2*i, Text: text}, err)
		}
	}
	tables, err := kernel.Tables()
	if err != nil {
		errs = append(errs, err)
	}
	shared = map[kernel.Named]bool{}
	for i, l := range legacies {
		family := 4 + 2*i
		of := func(t kernel.Named) bool {
			return t.Family == xtablesFamilies[family] && slices.Contains(xtablesTables, t.Name)
		}
		if !slices.ContainsFunc(tables, of) {
			continue
		}
		text, err := printed(ctx, saveProgram(ctx, l.program, "nft"), "-c")
		if add(Text{Tool: "iptables-nft", Family: family, Text: text}, err) {
			tables = slices.DeleteFunc(tables, func(t kernel.Named) bool {
				if !of(t) {
					return false
				}
				shared[t] = says(text, t.Name, "contains incompatible base-chains")
				return !shared[t] && !says(text, t.Name, "is incompatible")
			})
		}
	}
	return texts, tables, shared, errs
}

// listed gives a table as text and as JSON.
func listed(ctx context.Context, family, name string) (text, listing []byte, err error) {
	if text, err = kernel.ListHandles(ctx, "table", family, name); err == nil {
		listing, err = kernel.List(ctx, "table", family, name)
		return text, listing, err
	}
	refused := err
	if listing, err = kernel.ListTable(ctx, family, name); err != nil {
		return nil, nil, refused
	}
	text, err = kernel.ListHandles(ctx, "ruleset") // others among it
	return text, listing, err
}

// says tells whether iptables-nft-save leaves a table to nft, which "is incompatible" where
// there are rules that it does not understand, or base chains in it that are not its own.
func says(saved []byte, table, what string) bool {
	return strings.Contains(string(saved), "# Table `"+table+"' "+what)
}

// Builtin says that a base chain of a table of nft is one of iptables.
func Builtin(table, chain string, priority int) bool {
	at, is := builtin[table].priority[chain]
	return is && at == priority
}
