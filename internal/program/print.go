package program

import (
	"fmt"
	"strings"
	"time"

	"sluice/internal/base/addrset"
)

// shownElements is how many elements of a set Text shows.
const shownElements = 8

// Text writes the program for a reader: for golden files and for looking at
// what a pass did. It is no format that anything reads back.
func (p *Program) Text() string {
	var b strings.Builder
	for _, s := range p.Sysctls {
		fmt.Fprintf(&b, "sysctl %s = %s\n", s.Name, s.Value)
	}
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "note: %s\n", n.Text)
	}
	for _, f := range p.Flowtables {
		fmt.Fprintf(&b, "flowtable %s: %s\n", f.Name, strings.Join(f.Devices, " "))
	}
	for i := range p.Sets {
		p.Sets[i].text(&b)
	}
	hooks := map[string]Hook{}
	for _, h := range p.Hooks {
		hooks[h.Chain] = h
	}
	for _, c := range p.Chains {
		b.WriteString("\nchain " + c.Name)
		if h, ok := hooks[c.Name]; ok {
			fmt.Fprintf(&b, " at %s %s, default %s", h.Kind, h.Phase, h.Default)
			if len(h.Devices) > 0 {
				b.WriteString(" on " + strings.Join(h.Devices, " "))
			}
		}
		b.WriteString("\n")
		for _, r := range c.Rules {
			b.WriteString("  " + r.Text())
			if r.ID != "" {
				b.WriteString("   # " + r.ID)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

func (s *Set) text(b *strings.Builder) {
	fmt.Fprintf(b, "set %s: %s of %s, %d elements", s.ID, s.Life, fieldsText(s.Key), s.Len())
	if s.Counters {
		b.WriteString(", counted")
	}
	if s.Verdicts {
		b.WriteString(", verdict map")
	}
	switch {
	case s.Others:
		fmt.Fprintf(b, ", at most %d, filled by another program", s.Size)
	case s.Commands:
		b.WriteString(", filled by commands")
	case s.Life == Dynamic:
		fmt.Fprintf(b, ", at most %d, for %d ms", s.Size, s.Timeout)
	}
	b.WriteString("\n")
	shown := 0
	for r := range s.Addresses.Each() {
		if shown == shownElements {
			fmt.Fprintf(b, "  … %d more\n", s.Addresses.Len4()+s.Addresses.Len6()-shown)
			break
		}
		b.WriteString("  " + r.String() + "\n")
		shown++
	}
	for _, e := range s.Ends[:min(len(s.Ends), shownElements)] {
		b.WriteString("  " + e.Range.String() + " until " + e.Until.Format(time.RFC3339) + "\n")
	}
	for i, e := range s.Elements {
		if i == shownElements {
			fmt.Fprintf(b, "  … %d more\n", len(s.Elements)-i)
			break
		}
		b.WriteString("  " + e.String() + "\n")
	}
}

func fieldsText(fields []Field) string {
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = string(f)
	}
	return strings.Join(texts, ".")
}

// Text writes a rule on one line.
func (r *Rule) Text() string {
	var parts []string
	for _, m := range r.Match {
		parts = append(parts, m.String())
	}
	if len(parts) == 0 {
		parts = []string{"always"}
	}
	var actions []string
	for _, a := range r.Actions {
		actions = append(actions, ActionText(a))
	}
	return strings.Join(parts, ", ") + " -> " + strings.Join(actions, ", ")
}

func (c Condition) String() string {
	field := string(c.Field)
	if len(c.SetKey) > 0 {
		field = fieldsText(c.SetKey)
	}
	if c.Mask != 0 {
		field += fmt.Sprintf("&0x%x", c.Mask)
	}
	if c.Not {
		field += " not"
	}
	var values []string
	values = append(values, c.Names...)
	for _, n := range c.Numbers {
		values = append(values, n.String())
	}
	for _, a := range c.Addresses {
		values = append(values, rangeText(a))
	}
	if c.Set != "" {
		values = append(values, "@"+c.Set)
	}
	if c.Text != "" {
		values = append(values, "`"+c.Text+"`")
	}
	return field + " " + strings.Join(values, "|")
}

func (n NumberRange) String() string {
	if n.From == n.To {
		return fmt.Sprint(n.From)
	}
	return fmt.Sprintf("%d-%d", n.From, n.To)
}

// rangeText is a range by its ends, also where it is a prefix.
func rangeText(r addrset.Range) string {
	if r.From == r.To {
		return r.From.String()
	}
	return r.From.String() + "-" + r.To.String()
}

func (v Value) String() string {
	switch {
	case v.Name != "":
		return v.Name
	case v.Addresses.From.IsValid():
		return rangeText(v.Addresses)
	}
	return v.Numbers.String()
}

func (e Element) String() string {
	parts := make([]string, len(e.Parts))
	for i, v := range e.Parts {
		parts[i] = v.String()
	}
	text := strings.Join(parts, " . ")
	if e.Verdict != nil {
		text += " : " + ActionText(e.Verdict)
	}
	if e.Counter != "" {
		text += ", count " + e.Counter
	}
	return text
}

func (r Rate) String() string {
	return fmt.Sprintf("%d per %d ms, burst %d", r.Packets, r.Per, r.Burst)
}

// ActionText writes an action for a reader.
func ActionText(a Action) string {
	switch a := a.(type) {
	case Verdict:
		return string(a)
	case Jump:
		return "jump " + a.Chain
	case Goto:
		return "goto " + a.Chain
	case VerdictMap:
		return fmt.Sprintf("verdict of %s in @%s", fieldsText(a.Key), a.Set)
	case NoTrack:
		return "notrack"
	case Count:
		return "count " + a.Counter
	case Log:
		if a.Group != 0 {
			return fmt.Sprintf("log %q to group %d", a.Prefix, a.Group)
		}
		if a.Rate == (Rate{}) {
			return fmt.Sprintf("log %q", a.Prefix)
		}
		return fmt.Sprintf("log %q (%s)", a.Prefix, a.Rate)
	case Limit:
		text := fmt.Sprintf("while %s (%s)", a.Name, a.Rate)
		if a.Per != Together {
			text += fmt.Sprintf(" per %s in %s", a.Per, a.Table)
		}
		if a.Asks {
			text += ", not counted"
		}
		if a.Ban != "" {
			text += fmt.Sprintf(", else ban in %s for %d ms", a.Ban, a.BanTimeout)
		}
		if a.Over != "" {
			text += " and goto " + a.Over
		}
		return text
	case ConnectionLimit:
		text := fmt.Sprintf("while at most %d connections (%s)", a.Max, a.Name)
		if a.Per != Together {
			text += fmt.Sprintf(" per %s in %s", a.Per, a.Table)
		}
		return text
	case SetAdd:
		if len(a.Fields) > 0 {
			return "add " + fieldsText(a.Fields) + " to " + a.Set
		}
		end := ""
		if a.Key == PerDestination {
			end = "destination "
		}
		switch {
		case a.Once:
			return "while " + end + "newly added to " + a.Set
		case a.Remove:
			return "remove " + end + "from " + a.Set
		}
		return "add " + end + "to " + a.Set
	case SetLabel:
		return fmt.Sprintf("label %d", a.Bit)
	case SetMark:
		return fmt.Sprintf("mark 0x%x/0x%x", a.Value, a.Mask)
	case DNAT:
		return fmt.Sprintf("dnat to %s port %d", a.To, a.Port)
	case DNATPrefix:
		return fmt.Sprintf("dnat %s to %s", a.From, a.To)
	case SNAT:
		return "snat to " + a.To.String() + portsText(a.Ports)
	case SNATPrefix:
		return fmt.Sprintf("snat %s to %s", a.From, a.To)
	case Masquerade:
		return "masquerade" + portsText(a.Ports)
	case Redirect:
		return fmt.Sprintf("redirect to port %d", a.Port)
	case MapSource:
		return fmt.Sprintf("map source %s to %s", a.From, a.To)
	case MapDestination:
		return fmt.Sprintf("map destination %s to %s", a.From, a.To)
	case ClampMSS:
		return "clamp mss"
	case Offload:
		return "offload to " + a.Flowtable
	}
	return fmt.Sprintf("%T", a)
}

func portsText(r NumberRange) string {
	if r.To == 0 {
		return ""
	}
	return fmt.Sprintf(" ports %d-%d", r.From, r.To)
}
