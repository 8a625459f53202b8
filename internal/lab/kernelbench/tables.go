package kernelbench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/lab/packetbench"
)

// Marked are the parts of a page that a record writes, by the name in their markers:
// <!-- figures: NAME -->, and <!-- end of figures --> behind them.
func (r *Record) Marked() map[string]string {
	return map[string]string{"summary": r.summary(), "examples": r.measured() + r.examples()}
}

const endMark = "<!-- end of figures -->\n"

// Write puts the parts into a page between their markers.
func (r *Record) Write(page string) (string, error) {
	for name, text := range r.Marked() {
		mark := "<!-- figures: " + name + " -->\n"
		before, rest, is := strings.Cut(page, mark)
		if !is {
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

// examples is every kind of packet of the examples.
func (r *Record) examples() string {
	var rows [][]string
	for _, p := range r.Packets {
		if p.Section != "examples" {
			continue
		}
		cells := []string{p.Name, thousands(p.Bare.Median), p.added(packetbench.Sluice)}
		for _, n := range byHand {
			cells = append(cells, p.added(n))
		}
		rows = append(rows, append(cells, p.ratio(true)))
	}
	return table([]string{"example and packet", "no rules", "Sluice", "nftables by hand", "iptables-nft, ipset", "Sluice against the cheaper"}, rows)
}

// summary has a row for each example: Sluice against the cheaper by hand.
func (r *Record) summary() string {
	columns := []string{"blocked, new", "allowed, new", "established", "forwarded, new", "forwarded, established"}
	var names []string
	for _, p := range r.Packets {
		if name, _, _ := strings.Cut(p.Name, ": "); p.Section == "examples" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var rows [][]string
	for _, n := range names {
		cells := []string{n}
		for _, column := range columns {
			var both []string
			for _, family := range []string{"IPv4", "IPv6"} {
				if text := r.find("examples", n+": "+family+", "+column).ratio(false); text != "" {
					both = append(both, text)
				}
			}
			cells = append(cells, strings.Join(both, " / "))
		}
		rows = append(rows, cells)
	}
	return table(append([]string{"IPv4 / IPv6"}, columns...), rows)
}
