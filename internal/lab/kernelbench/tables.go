package kernelbench

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/lab/packetbench"
)

// parts of a page that a record writes, by the name in their markers:
// <!-- figures: NAME -->, and <!-- end of figures --> behind them.
func (r *Record) parts() map[string]string {
	return map[string]string{"lists": r.lists(), "summary": r.measured() + r.summary(), "examples": r.measured() + r.examples()}
}

// Pages writes the tables of the tree's records into a page.
func Pages(page string) (string, error) {
	for file, of := range map[string]func(*Record) map[string]string{
		RecordFile: (*Record).parts,
		NewestFile: func(r *Record) map[string]string { return map[string]string{"newest": r.measured() + r.examples()} },
	} {
		record, err := LoadRecord(file)
		if file == NewestFile && errors.Is(err, fs.ErrNotExist) {
			continue // it is measured apart
		}
		if err != nil {
			return "", err
		}
		if page, err = write(page, of(record)); err != nil {
			return "", err
		}
	}
	return page, nil
}

const endMark = "<!-- end of figures -->\n"

// write puts parts into a page between their markers; an empty one was not measured.
func write(page string, parts map[string]string) (string, error) {
	for name, text := range parts {
		mark := "<!-- figures: " + name + " -->\n"
		before, rest, is := strings.Cut(page, mark)
		if !is || text == "" {
			continue
		}
		_, after, is := strings.Cut(rest, endMark)
		if !is {
			return "", fmt.Errorf("nothing ends the figures %s", name)
		}
		page = before + mark + "\n" + text + "\n" + endMark + after
	}
	return page, nil
}

// thousands writes 12345 as 12,345.
func thousands(v float64) string {
	text := strconv.FormatFloat(v, 'f', 0, 64)
	sign := ""
	if text == "-0" {
		text = "0"
	}
	if digits, is := strings.CutPrefix(text, "-"); is {
		sign, text = "−", digits
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

func table(head []string, rows [][]string) string {
	var b strings.Builder
	b.WriteString("| " + strings.Join(head, " | ") + " |\n|---|" + strings.Repeat("---:|", len(head)-1) + "\n")
	for _, row := range rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	return b.String()
}

func (r *Record) find(section, name string) Packet {
	i := slices.IndexFunc(r.Packets, func(p Packet) bool { return p.Section == section && p.Name == name })
	if i < 0 {
		return Packet{}
	}
	return r.Packets[i]
}

func (p Packet) added(by string) string {
	if c, there := p.Added[by]; there {
		return thousands(c.Median)
	}
	return ""
}

// measured says where and when.
func (r *Record) measured() string {
	return fmt.Sprintf("Measured on %s with Debian's %s:\n\n", r.Date, r.Kernel)
}

// cheaper is the one of the ways by hand that adds less.
func (p Packet) cheaper() (name string, there bool) {
	for _, n := range byHand {
		c, is := p.Added[n]
		if is && (!there || c.Median < p.Added[name].Median) {
			name, there = n, true
		}
	}
	return name, there
}

// ratio is what Sluice adds against the cheaper by hand, with bounds; where one of both
// takes away from what the packet costs, it is that of the whole packet.
func (p Packet) ratio(bounds bool) string {
	name, there := p.cheaper()
	own := p.Added[packetbench.Sluice]
	c, is := p.Ratios[name]
	switch {
	case !there:
		return ""
	case !is || own.Median <= 0:
		return fmt.Sprintf("%.2f*", (p.Bare.Median+own.Median)/(p.Bare.Median+p.Added[name].Median))
	case bounds:
		return fmt.Sprintf("%.2f (%.2f – %.2f)", c.Median, c.Low, c.High)
	}
	return fmt.Sprintf("%.2f", c.Median)
}

// ways are the columns of the examples, without those that were not measured.
func (r *Record) ways() (names, titles []string) {
	for _, w := range [][2]string{
		{packetbench.Sluice, "Sluice"}, {uncounted, "not counting"}, {byHand[0], "nftables by hand"}, {byHand[1], "iptables-nft, ipset"},
	} {
		if slices.ContainsFunc(r.Packets, func(p Packet) bool { return p.Section == Examples && p.added(w[0]) != "" }) {
			names, titles = append(names, w[0]), append(titles, w[1])
		}
	}
	return names, titles
}

// examples is every kind of packet of the examples.
func (r *Record) examples() string {
	names, titles := r.ways()
	var rows [][]string
	for _, p := range r.Packets {
		if p.Section != Examples {
			continue
		}
		cells := []string{p.Name, thousands(p.Bare.Median)}
		for _, n := range names {
			cells = append(cells, p.added(n))
		}
		rows = append(rows, append(cells, p.ratio(true)))
	}
	return table(slices.Concat([]string{"example and packet", "no rules"}, titles, []string{"Sluice against the cheaper"}), rows)
}

// summary has a row for each example: Sluice against the cheaper by hand.
func (r *Record) summary() string {
	columns := []string{"blocked, new", "allowed, new", "established", "forwarded, new", "forwarded, established"}
	var names []string
	for _, p := range r.Packets {
		if name, _, _ := strings.Cut(p.Name, ": "); p.Section == Examples && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var rows [][]string
	for _, n := range names {
		cells := []string{n}
		for _, column := range columns {
			var both []string
			for _, family := range []string{"IPv4", "IPv6"} {
				if text := r.find(Examples, n+": "+family+", "+column).ratio(false); text != "" {
					both = append(both, text)
				}
			}
			cells = append(cells, strings.Join(both, " / "))
		}
		rows = append(rows, cells)
	}
	return table(append([]string{"IPv4 / IPv6"}, columns...), rows)
}

// lists has a row for each way to ask a list of bans, or a set of countries.
func (r *Record) lists() string {
	if !r.has("lists") || !r.has("layouts") {
		return ""
	}
	var rows [][]string
	for _, row := range [][3]string{
		{"Sluice", packetbench.Sluice, packetbench.Sluice},
		{"nftables, one set", "nftables-set", "nftables-set"},
		{"iptables with ipset", "ipset (iptables-legacy)", "ipset (iptables-legacy)"},
		{"iptables, a rule each, in a chain per /8 for countries", "iptables-linear (iptables-legacy)", "chain-per-/8 (iptables-legacy)"},
		{"nftables, the same", "nftables-linear", "chain-per-/8 (nftables)"},
	} {
		cells := []string{row[0], r.find("lists", "IPv4, allowed, new").added(row[1])}
		for _, family := range []string{"IPv4", "IPv6"} {
			cells = append(cells, r.find("layouts", family+", blocked, new").added(row[2])+" / "+r.find("layouts", family+", allowed, new").added(row[2]))
		}
		rows = append(rows, cells)
	}
	return table([]string{"", fmt.Sprintf("%d bans, allowed", bans), "countries, IPv4", "countries, IPv6"}, rows)
}
