package nftables

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// artifact is a program ready for nf_tables.
type artifact struct {
	Format  int // of what Encode writes
	Tree    *Tree
	Plan    []program.Note
	asked   askedSets              // which of the sets that commands fill the rules ask
	older   *Tree                  // whose objects stay beside those of this one; may be nil
	costs   *CostModel             // what Cost is by
	layouts []backend.LayoutReport // of an artifact that was made here, not read
	passing openings               // which flows without entries the steps to it let pass for a moment
}

// In format 3 everything was in the table of both families, so that a program which
// knows no other would not ask for the family of what is translated. In format 4 no rule
// named the interface of a set that follows the host.
const (
	artifactFormat = 5
	oldestFormat   = 3
)

// Backend is the name of the backend that made it.
func (a *artifact) Backend() string { return Name }

// Text is the tree as nft reads it.
func (a *artifact) Text() string {
	header := []string{
		"Made by sluice for nftables. The same policy and lists give the same bytes.",
		"",
		"Sets are filled before rules use them: loading this file in one go works,",
		"but loses packets on a host under load; \"sluice apply\" goes in steps.",
	}
	for _, n := range a.Plan {
		header = append(header, "", "note: "+origin(n.Origin, n.Text))
		if n.Origin.Line > 0 && n.Origin.Text != "" {
			header[len(header)-1] += ": " + n.Text
		}
	}
	return a.shown().document(header)
}

// Cost estimates what the kernel pays for what is loaded of it.
func (a *artifact) Cost() backend.Cost { return a.costs.of(a.tree()) }

// Beside is the artifact while the objects of an older one stay.
func (a *artifact) Beside(older backend.Artifact) backend.Artifact {
	o, err := artifactOf(older)
	if err != nil || o == nil {
		return a
	}
	out := *a
	out.older = o.Tree
	return &out
}

// Notes is what the reader of a plan has to know.
func (a *artifact) Notes() []program.Note { return a.Plan }

// Encode writes parts (backend.Join): the tree as compressed JSON without what is
// in its sets; then of each set its addresses as package addrset writes them, and
// what else is in it as a list of texts. Text for hundreds of thousands of them
// would be slow to write and to read.
func (a *artifact) Encode() ([]byte, error) {
	var tree bytes.Buffer
	z, err := gzip.NewWriterLevel(&tree, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(z).Encode(a); err != nil {
		return nil, fmt.Errorf("encode the artifact: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("encode the artifact: %w", err)
	}
	parts := [][]byte{tree.Bytes()}
	for _, s := range a.Tree.Sets {
		addresses, err := s.Elements.Addresses.MarshalBinary()
		if err != nil {
			return nil, fmt.Errorf("encode the artifact: %w", err)
		}
		parts = append(parts, addresses, appendTexts(appendTexts(nil, s.Elements.Tuples), s.Elements.Verdicts))
	}
	return backend.Join(parts...), nil
}

// appendTexts writes how many texts there are, and each behind its length.
func appendTexts(to []byte, texts []string) []byte {
	to = binary.AppendUvarint(to, uint64(len(texts)))
	for _, text := range texts {
		to = append(binary.AppendUvarint(to, uint64(len(text))), text...)
	}
	return to
}

func cutTexts(data []byte) (texts []string, rest []byte, err error) {
	count, n := binary.Uvarint(data)
	if n <= 0 || count > uint64(len(data)) {
		return nil, nil, errCutOff
	}
	rest = data[n:]
	if count > 0 {
		texts = make([]string, 0, count)
	}
	for range count {
		size, n := binary.Uvarint(rest)
		if n <= 0 || size > uint64(len(rest)-n) {
			return nil, nil, errCutOff
		}
		texts, rest = append(texts, string(rest[n:n+int(size)])), rest[n+int(size):] //nolint:gosec // not longer than rest
	}
	return texts, rest, nil
}

// maxDecoded bounds what is unpacked from disk, in bytes.
const maxDecoded = 1 << 30

func decode(data []byte) (*artifact, error) {
	a, err := decodeParts(data)
	if err != nil {
		return nil, fmt.Errorf("decode the artifact: %w", err)
	}
	return a, nil
}

var (
	errCutOff = errors.New("it is truncated")
	errNone   = errors.New("it has null for a set or chain")
)

func decodeParts(data []byte) (*artifact, error) {
	parts, err := backend.Split(data)
	if err != nil || len(parts) == 0 {
		return nil, errors.New("it is not an artifact of this version")
	}
	z, err := gzip.NewReader(bytes.NewReader(parts[0]))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(z, maxDecoded))
	if err != nil {
		return nil, err
	}
	var a artifact
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, err
	}
	if a.Format < oldestFormat || a.Format > artifactFormat || a.Tree == nil {
		return nil, fmt.Errorf("format %d, this version reads %d to %d", a.Format, oldestFormat, artifactFormat)
	}
	if slices.Contains(a.Tree.Sets, nil) || slices.Contains(a.Tree.Chains, nil) {
		return nil, errNone
	}
	if len(parts) != 1+2*len(a.Tree.Sets) {
		return nil, errCutOff
	}
	for i, s := range a.Tree.Sets {
		if err := s.Elements.Addresses.UnmarshalBinary(parts[1+2*i]); err != nil {
			return nil, fmt.Errorf("set %s: %w", s.Name, err)
		}
		rest := parts[2+2*i]
		if s.Elements.Tuples, rest, err = cutTexts(rest); err == nil {
			s.Elements.Verdicts, rest, err = cutTexts(rest)
		}
		if err != nil || len(rest) > 0 {
			return nil, fmt.Errorf("set %s: %w", s.Name, errCutOff)
		}
	}
	if err := a.Tree.check(); err != nil {
		return nil, err
	}
	return &a, nil
}

// elementsJSON is how elements are written except for what has a part of its own:
// ranges as one text, which is quicker to read and smaller than a list of objects.
type elementsJSON struct {
	Unknown  bool                     `json:",omitempty"`
	Ranges   string                   `json:",omitempty"`
	Ends     string                   `json:",omitempty"` // as Ranges, each with its time behind a comma
	Counters map[string]string        `json:",omitempty"`
	Counts   map[string]backend.Count `json:",omitempty"`
}

// MarshalJSON writes the ranges as one text.
func (e Elements) MarshalJSON() ([]byte, error) {
	ranges, ends := make([]string, len(e.Ranges)), make([]string, len(e.Ends))
	for i, r := range e.Ranges {
		ranges[i] = r.String()
	}
	for i, end := range e.Ends {
		ends[i] = end.Range.String() + "," + end.Until.UTC().Format(time.RFC3339Nano)
	}
	return json.Marshal(elementsJSON{e.Unknown, strings.Join(ranges, " "), strings.Join(ends, " "), e.Counters, e.Counts})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *Elements) UnmarshalJSON(data []byte) error {
	var in elementsJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*e = Elements{Unknown: in.Unknown, Counters: in.Counters, Counts: in.Counts}
	for text := range strings.FieldsSeq(in.Ranges) {
		r, err := addrset.ParseRange(text)
		if err != nil {
			return fmt.Errorf("element %q: %w", text, err)
		}
		e.Ranges = append(e.Ranges, r)
	}
	for text := range strings.FieldsSeq(in.Ends) {
		what, until, _ := strings.Cut(text, ",")
		r, err := addrset.ParseRange(what)
		end := addrset.Ending{Range: r}
		if err == nil {
			end.Until, err = time.Parse(time.RFC3339Nano, until)
		}
		if err != nil {
			return fmt.Errorf("element %q: %w", text, err)
		}
		e.Ends = append(e.Ends, end)
	}
	return nil
}
