package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/cli/answers"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/prove/explain"
	"sluice/internal/prove/query"
)

// topDropTime is how long is waited for packets that are dropped at a place.
const topDropTime = 3 * time.Second

// topEntries is how many connections of a source are shown.
const topEntries = 10

// explainTop says what there is about a row: of a line what it makes of a packet that meets
// it, of a source its connections, of a drop such packets, and what the policy does with one
// of them.
func explainTop(ctx context.Context, h door, r topRow) (string, error) {
	var b bytes.Buffer
	var err error
	switch of := r.of.(type) {
	case engine.TopLine:
		err = explainTopLine(ctx, &b, h, of)
	case engine.TopSource:
		err = explainTopSource(ctx, &b, h, of)
	case engine.TopDrop:
		err = explainTopDrop(ctx, &b, h, of)
	}
	return b.String(), err
}

func explainTopLine(ctx context.Context, w io.Writer, h door, l engine.TopLine) error {
	fmt.Fprintf(w, "%s\nin %s: %s and %s since it was first loaded, %s pkt/s and %s/s\n\n", lineText(l), l.Section,
		english.Plural(l.Packets, "packet"), english.Plural(l.Bytes, "byte"), short(l.PacketRate), bytesShort(l.ByteRate))
	switch {
	case l.Origin.Line == 0:
		fmt.Fprintln(w, "The policy does not state it; it always holds.")
		return nil
	case l.Verdict == "":
		fmt.Fprintln(w, "It decides nothing: the packet goes on to the lines of its section.")
		return nil
	}
	example, err := metBy(ctx, h, l)
	if err != nil {
		return err
	}
	if example == nil {
		fmt.Fprintln(w, "It decides on no packet that begins a connection: earlier lines decide on all of them.")
		return nil
	}
	fmt.Fprintln(w, "A packet that it decides on:")
	return explainTopPacket(ctx, w, h, explain.Question{
		Protocol: strconv.Itoa(int(example.Protocol)), Source: addressText(example.Source), Destination: addressText(example.Destination),
		SourcePort: numberText(example.SourcePort), Port: numberText(example.Port), In: example.In, Out: example.Out,
		ICMPType: icmpText(example.ICMPType), Hook: l.Section, State: example.State,
	})
}

// metBy is a packet that a line decides on; nil where there is none.
func metBy(ctx context.Context, h door, l engine.TopLine) (*query.Example, error) {
	states := []packet.State{packet.New, packet.Untracked}
	narrow := wordsOfLine(l.Text)
	narrow.Hook, narrow.States = l.Section, states
	for _, words := range []query.Words{narrow, {Hook: l.Section, States: states}} {
		out, err := h.Query(ctx, engine.Querying{Words: words})
		if err != nil && words.Service == "" {
			return nil, err
		}
		if err != nil {
			continue // the words are for rules, and some are for no question
		}
		for _, c := range out.Classes {
			if c.By.File == l.Origin.File && c.By.Line == l.Origin.Line {
				return &c.Example, nil
			}
		}
	}
	return nil, nil
}

// wordsOfLine are those of a line that a question has too, so that less is asked.
func wordsOfLine(text string) (w query.Words) {
	var words []string
	quoted := false
	for depth, from, i := 0, 0, 0; i <= len(text); i++ {
		switch {
		case i < len(text) && text[i] == '"':
			quoted = !quoted
		case i == len(text) || text[i] == ' ' && depth == 0 && !quoted:
			words = append(words, text[from:i])
			from = i + 1
		case text[i] == '[':
			depth++
		case text[i] == ']':
			depth--
		}
	}
	if len(words) < 2 || words[0] == "default:" {
		return w
	}
	w.Service = words[1]
	for i := 2; i+1 < len(words); i++ {
		for word, to := range map[string]*string{"from": &w.From, "to": &w.To, "in": &w.In, "out": &w.Out} {
			if words[i] == word && words[i+1] != "not" {
				*to = words[i+1]
			}
		}
	}
	return w
}

func explainTopSource(ctx context.Context, w io.Writer, h door, s engine.TopSource) error {
	out, err := h.Entries(ctx, engine.EntryQuestion{EntryChoice: engine.EntryChoice{Source: s.Address.String()}, Most: topEntries})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "Connections from %s\n", strings.TrimSpace(s.Address.String()+" "+s.Country))
	printEntries(w, out)
	if len(out.List) == 0 {
		return nil
	}
	e := out.List[0]
	fmt.Fprintln(w, "\nA packet that would begin the first of them now:")
	return explainTopPacket(ctx, w, h, explain.Question{
		Protocol: e.Protocol, Source: e.Source.Addr().String(), Destination: e.To.Addr().String(), SourcePort: numberText(e.Source.Port()), Port: numberText(e.To.Port()),
	})
}

func explainTopDrop(ctx context.Context, w io.Writer, h door, d engine.TopDrop) error {
	ctx, stop := context.WithTimeout(ctx, topDropTime)
	defer stop()
	c := engine.DropChoice{Reason: d.Reason, Function: d.Function}
	if c.Function == engine.UnknownFunction {
		c.Function = ""
	}
	var seen []engine.Dropped
	if _, err := h.Drops(ctx, c, func(d engine.Dropped) {
		if seen = append(seen, d); len(seen) == topEntries {
			stop()
		}
	}, func(engine.DropCounts) {}); err != nil {
		return err
	}
	if len(seen) == 0 {
		fmt.Fprintf(w, "No packet was dropped there within %s.\n", english.Duration(topDropTime))
		return nil
	}
	for _, d := range seen {
		fmt.Fprintln(w, dropLine(w, d))
	}
	for _, d := range seen {
		if q, err := d.Question(); err == nil {
			fmt.Fprintln(w, "\nWhat the policy does with the first of them:")
			return explainTopPacket(context.WithoutCancel(ctx), w, h, q)
		}
	}
	return nil
}

func explainTopPacket(ctx context.Context, w io.Writer, h door, q explain.Question) error {
	e, err := h.Explain(ctx, engine.Explaining{Question: q})
	if errors.Is(err, apply.ErrNoPolicy) {
		fmt.Fprintln(w, "no policy of Sluice runs")
		return nil
	}
	if err != nil {
		return err
	}
	answers.Explained(w, e, false)
	return nil
}

func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func numberText(n uint16) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(int(n))
}

func icmpText(n *uint8) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(int(*n))
}

// wrapped is text in lines of so many columns at most, of which none steers a terminal.
func wrapped(text string, columns int) (out []string) {
	for line := range strings.Lines(text) {
		line = command.Plain(strings.TrimRight(line, "\n"))
		rest := line
		for columnsIn(rest) > columns {
			used, cut := 0, 0
			space := -1
			for i, r := range rest {
				if used += columnsOf(r); used > columns {
					break
				}
				if cut = i + utf8.RuneLen(r); r == ' ' && strings.TrimSpace(rest[:i]) != "" {
					space = i
				}
			}
			if space > 0 {
				cut = space
			} else if cut == 0 {
				break // no room for one character
			}
			out = append(out, rest[:cut])
			rest = "    " + strings.TrimLeft(rest[cut:], " ")
		}
		out = append(out, cutTo(rest, columns))
	}
	return out
}
