package policy

import (
	"strconv"
	"strings"
	"time"
)

// canonical is the rule as one line in the canonical order.
func (r *Rule) canonical() string {
	var b strings.Builder
	b.WriteString(string(r.Action))
	if r.Action != ClampMSS {
		if r.Published {
			b.WriteString(" published")
		}
		b.WriteString(" " + servicesText(r.Services))
	}
	if r.Family != 0 {
		b.WriteString(" " + familyText(r.Family))
	}
	for _, w := range []struct {
		word string
		who  *Who
	}{{"from", r.From}, {"to", r.To}} {
		if w.who != nil {
			b.WriteString(" " + w.word + " " + w.who.canonical())
		}
	}
	if r.In != nil {
		b.WriteString(" in " + r.In.Text)
	}
	if r.Out != nil {
		b.WriteString(" out " + r.Out.Text)
	}
	if len(r.Users) > 0 {
		names := make([]string, len(r.Users))
		for i, u := range r.Users {
			names[i] = u.Text
		}
		b.WriteString(" by user " + listText(names))
	}
	if r.Limit != nil {
		b.WriteString(" limit " + r.Limit.canonical())
	}
	if r.Max != nil {
		b.WriteString(" max " + strconv.FormatUint(uint64(r.Max.Count), 10) + " connections")
		if r.Max.PerSource {
			b.WriteString(" per source")
		}
	}
	if !r.Until.IsZero() {
		b.WriteString(" until " + r.Until.Format(time.RFC3339))
	}
	if r.Log != nil {
		b.WriteString(" " + LogText(*r.Log))
	}
	return b.String()
}

// LogText is the end of a rule that logs.
func LogText(prefix string) string {
	if prefix == "" {
		return "log"
	}
	return `log "` + prefix + `"`
}

func familyText(family int) string { return "ipv" + strconv.Itoa(family) }

func listText(items []string) string {
	if len(items) == 1 {
		return items[0]
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func servicesText(refs []ServiceRef) string {
	if len(refs) == 0 {
		return "any"
	}
	words := make([]string, len(refs))
	for i, r := range refs {
		words[i] = r.Text
	}
	return listText(words)
}

// canonical is a WHO in words.
func (w *Who) canonical() string {
	words := make([]string, len(w.Items))
	for i, item := range w.Items {
		if words[i] = item.Name; item.Name == "" {
			words[i] = item.Literal.String()
		}
	}
	text := listText(words)
	if w.Not {
		text = "not " + text
	}
	return text
}

func (l *Limit) canonical() string {
	text := strconv.FormatUint(l.Count, 10) + "/" + unitText(l.Per)
	if l.PerSource {
		text += " per source"
	}
	if l.Burst != 0 {
		text += " burst " + strconv.FormatUint(l.Burst, 10)
	}
	if l.ThenBan != 0 {
		text += " then ban " + formatDuration(l.ThenBan)
		if l.Widen {
			text += " widen"
		}
	}
	return text
}

// unitText names whole units and writes other times as durations.
func unitText(d time.Duration) string {
	for _, u := range units[1:] {
		if d == u.length {
			return u.words[0]
		}
	}
	return formatDuration(d)
}

func (b *Bypass) canonical() string {
	text := servicesText(b.Services)
	if b.To != nil {
		text += " to " + b.To.canonical()
	}
	return text
}

func (n *NAT) canonical() string {
	text := string(n.Kind)
	switch n.Kind {
	case Masquerade:
		if n.From != nil {
			text += " from " + n.From.canonical()
		}
		text += " out " + n.Out.Text
		switch {
		case n.As != nil: // says the family
			text += " as " + n.As.Range.String()
		case n.Family != 0:
			text += " " + familyText(n.Family)
		}
	case Redirect:
		text += " " + n.Service.Text
		if n.Family != 0 && len(n.On) == 0 && !n.Target.Address.IsValid() {
			text += " " + familyText(n.Family)
		}
		if n.In != nil {
			text += " in " + n.In.Text
		}
		if len(n.On) > 0 {
			on := make([]string, len(n.On))
			for i, r := range n.On {
				on[i] = r.Range.String()
			}
			text += " on " + listText(on)
		}
		text += " to " + n.Target.canonical()
	case Map:
		text += " " + n.Outside.Range.String() + " to " + n.Inside.Range.String()
		if n.Stateless {
			text += " stateless"
		}
	}
	return text
}

func (t *Target) canonical() string {
	address := ""
	if t.Address.IsValid() {
		address = t.Address.From.String()
		if t.Port == 0 {
			return address
		}
		if strings.Contains(address, ":") {
			address = "[" + address + "]"
		}
	}
	return address + ":" + strconv.Itoa(int(t.Port))
}
