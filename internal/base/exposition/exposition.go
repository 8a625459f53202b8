// Package exposition writes samples in the text format that Prometheus reads, version
// 0.0.4, and bounds how many there are. Callers: engine, which makes them; agent and cli,
// which write them.
package exposition

import (
	"bufio"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ContentType is the media type of the format.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Type is what a family is.
type Type string

// Types.
const (
	Gauge     Type = "gauge"
	Counter   Type = "counter"
	Histogram Type = "histogram"
)

// Family is the samples of one name.
type Family struct {
	Name    string   `json:"name"`
	Help    string   `json:"help"` // one line
	Type    Type     `json:"type"`
	Samples []Sample `json:"samples"`
}

// Sample is one value. Labels that are empty are none.
type Sample struct {
	Labels map[string]string `json:"labels,omitempty"`
	Value  float64           `json:"value"`
	// Of is what of a histogram it is: "_bucket", "_sum" or "_count" behind its name.
	Of string `json:"of,omitempty"`

	text string // of the labels; "": Write makes it
}

// Labelled is a sample of no value yet, for whoever writes it again and again.
func Labelled(labels map[string]string) Sample {
	maps.DeleteFunc(labels, func(_, value string) bool { return value == "" })
	return Sample{Labels: labels, text: labelText(labels)}
}

// Add adds a sample.
func (f *Family) Add(value float64, labels map[string]string) {
	maps.DeleteFunc(labels, func(_, value string) bool { return value == "" })
	f.Samples = append(f.Samples, Sample{Labels: labels, Value: value})
}

// AddHistogram adds the samples of a histogram: how many values were at most each bound and
// above the one before, the last of counts being of those above all bounds, and their sum.
func (f *Family) AddHistogram(bounds []float64, counts []int64, sum float64, labels map[string]string) {
	total := int64(0)
	add := func(of string, value float64, le string) {
		with := maps.Clone(labels)
		if le != "" {
			with["le"] = le
		}
		f.Samples = append(f.Samples, Sample{Labels: with, Value: value, Of: of})
	}
	for i, n := range counts {
		total += n
		le := "+Inf"
		if i < len(bounds) {
			le = strconv.FormatFloat(bounds[i], 'f', -1, 64)
		}
		add("_bucket", float64(total), le)
	}
	add("_sum", sum, "")
	add("_count", float64(total), "")
}

// Table is the families as a table in Markdown, each with the labels of its samples.
func Table(families []Family) string {
	var out strings.Builder
	out.WriteString("| Name | Type | Labels | What |\n|---|---|---|---|\n")
	for _, f := range families {
		labels := map[string]bool{}
		for _, s := range f.Samples {
			for name := range s.Labels {
				labels["`"+name+"`"] = true
			}
		}
		out.WriteString("| `" + f.Name + "` | " + string(f.Type) + " | " + strings.Join(slices.Sorted(maps.Keys(labels)), ", ") + " | " + f.Help + " |\n")
	}
	return out.String()
}

// Join joins what several have, by the names of the families, in the order in which these
// come first.
func Join(several ...[]Family) []Family {
	var out []Family
	at := map[string]int{}
	for _, families := range several {
		for _, f := range families {
			i, there := at[f.Name]
			if !there {
				i, at[f.Name] = len(out), len(out)
				out = append(out, Family{f.Name, f.Help, f.Type, nil})
			}
			out[i].Samples = append(out[i].Samples, f.Samples...)
		}
	}
	return out
}

// Bound leaves at most so many samples, and says how many it left out: each family keeps as
// many of its first ones as the largest may have.
func Bound(families []Family, most int) (leftOut int) {
	total := 0
	for _, f := range families {
		total += len(f.Samples)
	}
	if total <= most {
		return 0
	}
	sizes := make([]int, len(families))
	for i, f := range families {
		sizes[i] = len(f.Samples)
	}
	slices.Sort(sizes)
	left, each := most, 0
	for i, n := range sizes {
		if each = left / (len(sizes) - i); n > each {
			break
		}
		left -= n
	}
	for i := range families {
		f := &families[i]
		if n := len(f.Samples); n > each {
			leftOut, f.Samples = leftOut+n-each, f.Samples[:each]
		}
	}
	return leftOut
}

var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	valueEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// Write writes the families that have samples. The error is that of the writer.
func Write(to io.Writer, families []Family) error {
	w := bufio.NewWriter(to)
	for _, f := range families {
		if len(f.Samples) == 0 {
			continue
		}
		for _, text := range []string{"# HELP ", f.Name, " ", helpEscapes.Replace(f.Help), "\n# TYPE ", f.Name, " ", string(f.Type), "\n"} {
			_, _ = w.WriteString(text)
		}
		for i := range f.Samples {
			f.Samples[i].write(w, f.Name)
		}
	}
	return w.Flush()
}

func labelText(labels map[string]string) string {
	if len(labels) == 0 {
		return ""
	}
	var b strings.Builder
	between := byte('{')
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		b.WriteByte(between)
		b.WriteString(label)
		b.WriteString(`="`)
		_, _ = valueEscapes.WriteString(&b, strings.ToValidUTF8(labels[label], "\uFFFD"))
		b.WriteByte('"')
		between = ','
	}
	b.WriteByte('}')
	return b.String()
}

func (s *Sample) write(w *bufio.Writer, name string) {
	_, _ = w.WriteString(name)
	_, _ = w.WriteString(s.Of)
	text := s.text
	if text == "" {
		text = labelText(s.Labels)
	}
	_, _ = w.WriteString(text)
	_ = w.WriteByte(' ')
	_, _ = w.Write(strconv.AppendFloat(w.AvailableBuffer(), s.Value, 'f', -1, 64))
	_ = w.WriteByte('\n')
}
