package peers

import (
	"bytes"
	"fmt"

	"sluice/internal/language/policy"
)

func (w *nftText) limit(l *policy.Limit, f int) string {
	if l == nil {
		return ""
	}
	count, unit, _ := rateOf(l)
	burst := l.Burst
	if burst == 0 {
		burst = l.Count
	}
	rate := fmt.Sprintf("limit rate %d/%s burst %d packets", count, unit, burst)
	if !l.PerSource {
		return rate
	}
	return w.perSource(f, "flags dynamic,timeout; timeout 1h;", rate)
}

// sourceOf is what counts as one source: an address of IPv4, a /64 of IPv6.
func sourceOf(f int, field string) string {
	if f == 6 {
		return "ip6 " + field + " & ffff:ffff:ffff:ffff::"
	}
	return "ip " + field
}

// banOver bans who is over a limit; "" where nobody is.
func (w *nftText) banOver(l *policy.Limit, f int) string {
	if l == nil || l.ThenBan == 0 {
		return ""
	}
	spared := ""
	if part, none := (&Addresses{Name: "spared", Set: w.meaning.Spared, Not: true}).of(f); part != nil && !none {
		spared = fmt.Sprintf("%s saddr != @%s ", ipOfFamily(f), w.set(nftTest{f, "saddr", part}))
	}
	return fmt.Sprintf("%supdate @%s { %s timeout %ds } drop", spared, w.overLimit(f), sourceOf(f, "saddr"), int(l.ThenBan.Seconds()))
}

// overLimit is the set of those whom a limit has banned.
func (w *nftText) overLimit(f int) string {
	name := fmt.Sprintf("over%d", f)
	if !w.named[name] {
		w.named[name] = true
		fmt.Fprintf(&w.sets, "\tset %s { type ipv%d_addr; size 65535; flags dynamic,timeout; timeout 1h; }\n", name, f)
	}
	return name
}

// bannedByLimit drops what comes from those whom a limit has banned, and goes to them.
func (w *nftText) bannedByLimit(to *bytes.Buffer, hook policy.Hook) {
	if !w.meaning.bansByLimit() {
		return
	}
	for _, field := range map[policy.Hook][]string{policy.Input: {"saddr"}, policy.Output: {"daddr"}, policy.Forward: {"saddr", "daddr"}}[hook] {
		for _, f := range []int{4, 6} {
			fmt.Fprintf(to, "\t\t%s @%s drop\n", sourceOf(f, field), w.overLimit(f))
		}
	}
}

func (w *nftText) max(m *policy.MaxConnections, f int) string {
	if m == nil {
		return ""
	}
	count := fmt.Sprintf("ct count %d", m.Count)
	if !m.PerSource {
		return count
	}
	return w.perSource(f, "flags dynamic;", count)
}

func (w *nftText) perSource(f int, flags, what string) string {
	w.counted++
	name := fmt.Sprintf("sources%d", w.counted)
	fmt.Fprintf(&w.sets, "\tset %s { type ipv%d_addr; size 65535; %s }\n", name, f, flags)
	return fmt.Sprintf("add @%s { %s %s }", name, sourceOf(f, "saddr"), what)
}

func logLimited(prefix string) string {
	return fmt.Sprintf("limit rate 5/second burst 10 packets log prefix %q", prefix)
}
