package bans

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/internal/base/addrset"
)

// What a line of the journal says, and what all of them come to.

// Group is bans that have all but the address in common.
type Group struct {
	Until  time.Time `json:"until,omitzero"`
	Reason string    `json:"reason,omitempty"`
	Bans   string    `json:"bans"` // addresses, prefixes and ranges, with a space between
}

// Entry is what one command did.
type Entry struct {
	Format int       `json:"format,omitempty"`
	Time   time.Time `json:"time,omitzero"`
	By     Author    `json:"by,omitzero"`
	Groups []Group   `json:"ban,omitempty"`
	Lifted string    `json:"lift,omitempty"` // as Group.Bans
	// Countries are those that it bans, and LiftedCountries the codes of those that it
	// lifts, with a space between.
	Countries       []countryGroup `json:"countries,omitempty"`
	LiftedCountries string         `json:"lift-countries,omitempty"`
	// Fleet are bans of the fleet, and LiftedFleet the ID and the range of those that it lifts,
	// with a space between all.
	Fleet       []fleetGroup `json:"fleet,omitempty"`
	LiftedFleet string       `json:"lift-fleet,omitempty"`
	Settled     bool         `json:"settled,omitempty"`
	Kept        []keptGroup  `json:"kept,omitempty"` // everything, at the begin of a journal that was rewritten
	Past        []pastGroup  `json:"past,omitempty"` // of PastFile, which has nothing else
	// Boot is that of Time, which was Up milliseconds old then; empty where nothing ends.
	Boot string `json:"boot,omitempty"`
	Up   int64  `json:"up,omitempty"`
}

// keptGroup is a Group of a journal that was rewritten.
type keptGroup struct {
	Group
	Since time.Time `json:"since"`
	By    Author    `json:"by,omitzero"`
}

// fleetGroup is bans of the fleet; IDs are theirs, with a space between.
type fleetGroup struct {
	keptGroup
	IDs         string `json:"ids"`
	Incarnation int64  `json:"incarnation,omitempty"`
}

// countryGroup is the ban of a country, with what it had then.
type countryGroup struct {
	keptGroup
	Code string    `json:"country,omitempty"`
	Data time.Time `json:"data,omitzero"`
}

// countryGroups is those of the bans that are of countries.
func countryGroups(list []Ban) (out []countryGroup) {
	for _, b := range list {
		if c := b.Country; c != nil {
			out = append(out, countryGroup{keptGroup{Group{b.Until, b.Reason, Words(c.Set.Ranges())}, b.Since, b.By}, c.Code, c.Data})
		}
	}
	return out
}

// Words joins ranges as Entry has them.
func Words(ranges []addrset.Range) string {
	var b strings.Builder
	for i, r := range ranges {
		if i > 0 {
			b.WriteByte(' ')
		}
		if r.From == r.To {
			b.Write(r.From.AppendTo(nil))
			continue
		}
		b.WriteString(r.String())
	}
	return b.String()
}

// EntryOf is the entry that bans a list, which has one author and time.
func EntryOf(list []Ban, now time.Time, by Author) Entry {
	e := Entry{Time: now, By: by, Countries: countryGroups(list), Fleet: fleetGroups(list)}
	plain := slices.DeleteFunc(slices.Clone(list), func(b Ban) bool { return b.Country != nil || b.ID != "" })
	for _, g := range groups(plain, func(b Ban) Group { return Group{Until: b.Until, Reason: b.Reason} }) {
		g.key.Bans = Words(g.ranges)
		e.Groups = append(e.Groups, g.key)
	}
	return e
}

// fleetGroups is those of the bans that are of the fleet.
func fleetGroups(list []Ban) (out []fleetGroup) {
	of := slices.DeleteFunc(slices.Clone(list), func(b Ban) bool { return b.ID == "" })
	for _, g := range groups(of, keptKeyOf) {
		out = append(out, fleetGroup{keptOf(g), strings.Join(g.ids, " "), g.key.incarnation})
	}
	return out
}

// Lift has the entry lift bans of the fleet.
func (e *Entry) Lift(list []Ban) {
	var words []string
	for _, b := range list {
		words = append(words, b.ID, b.What.String())
	}
	e.LiftedFleet = strings.Join(words, " ")
}

type group[K any] struct {
	key    K
	ranges []addrset.Range
	ids    []string
}

// groups puts together what has an equal key, in the order of the first.
func groups[K comparable](list []Ban, key func(Ban) K) []*group[K] {
	var out []*group[K]
	by := map[K]*group[K]{}
	for _, b := range list {
		k := key(b)
		g := by[k]
		if g == nil {
			g = &group[K]{key: k}
			by[k] = g
			out = append(out, g)
		}
		g.ranges, g.ids = append(g.ranges, b.What), append(g.ids, b.ID)
	}
	return out
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(body []byte) uint32 { return crc32.Checksum(body, castagnoli) }

func encode(e Entry) ([]byte, error) {
	body, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode bans: %w", err)
	}
	return append(fmt.Appendf(make([]byte, 0, len(body)+10), "%08x %s", checksum(body), body), '\n'), nil
}

var errLine = errors.New("damaged line")

// body is the JSON of a line whose checksum holds.
func body(line []byte) (text []byte, good bool) {
	sum, text, found := bytes.Cut(line, []byte{' '})
	var want [4]byte
	if n, err := hex.Decode(want[:], sum[:min(len(sum), 8)]); !found || err != nil || n != 4 || len(sum) != 8 {
		return nil, false
	}
	return text, checksum(text) == binary.BigEndian.Uint32(want[:])
}

func decode(line []byte) (e Entry, err error) {
	text, good := body(line)
	if !good {
		return e, errLine
	}
	if string(text) == settled {
		return Entry{Settled: true}, nil
	}
	if json.Unmarshal(text, &e) != nil {
		return e, errLine
	}
	return e, nil
}

var errNewer = errors.New("written by a newer sluice")

// parse reads the text of a journal.
func parse(data []byte, now Moment) (*List, error) {
	r, err := replay(data, now)
	if err != nil {
		return nil, err
	}
	r.list.Bans = sum(r.edits)
	last := map[string]*Ban{}
	for _, e := range r.countries {
		last[e.of] = e.ban
	}
	for _, code := range slices.Sorted(maps.Keys(last)) {
		if last[code] != nil {
			r.list.Countries = append(r.list.Countries, *last[code])
		}
	}
	return r.list, nil
}

// replayed is every edit of a journal in its order, and a list of all but the bans.
type replayed struct {
	list      *List
	edits     []edit[place]
	countries []edit[string]
}

func replay(data []byte, now Moment) (*replayed, error) {
	r := &replayed{list: &List{Settled: true}}
	list := r.list
	shifts := shifts{began: map[string]time.Time{}}
	number := 0
	for len(data) > 0 {
		line, rest, whole := bytes.Cut(data, []byte{'\n'})
		data = rest
		number++
		if len(line) == 0 {
			continue
		}
		e, err := decode(line)
		if err == nil && e.Format > newest {
			return nil, errNewer
		}
		before, countries := len(r.edits), len(r.countries)
		if err == nil {
			err = r.add(&e)
		}
		addShifts(&shifts, &e, r.edits[before:])
		addShifts(&shifts, &e, r.countries[countries:])
		switch {
		case err == nil:
			list.Settled = e.Settled
		case whole || len(rest) > 0:
			list.Damaged = append(list.Damaged, number)
			list.Settled = false
		default:
			list.Settled = false
		}
	}
	shifts.apply(now)
	return r, nil
}

// edit is a ban, or where it has none the end of one: of a range, or of a country by its
// code.
type edit[K comparable] struct {
	of   K
	ban  *Ban // of ranges, what it has in common with others
	lift *lifting
}

// lifting is when bans were lifted, and by whom.
type lifting struct {
	at time.Time
	by Author
}

// add adds the edits of an entry, or none where a part of it cannot be read.
func (r *replayed) add(e *Entry) error {
	out, countries := r.edits, r.countries
	add := func(text string, of *Ban, lift *lifting) error {
		out = slices.Grow(out, strings.Count(text, " ")+1)
		return eachRange(text, func(what addrset.Range) { out = append(out, edit[place]{place{what: what}, of, lift}) })
	}
	lift := &lifting{e.Time, e.By}
	if err := add(e.Lifted, nil, lift); err != nil {
		return err
	}
	for code := range strings.FieldsSeq(e.LiftedCountries) {
		countries = append(countries, edit[string]{code, nil, lift})
	}
	for _, g := range e.Groups {
		if err := add(g.Bans, &Ban{Since: e.Time, Until: g.Until, By: e.By, Reason: g.Reason}, nil); err != nil {
			return err
		}
	}
	for _, g := range e.Kept {
		if err := add(g.Bans, &Ban{Since: g.Since, Until: g.Until, By: g.By, Reason: g.Reason}, nil); err != nil {
			return err
		}
	}
	lifted := strings.Fields(e.LiftedFleet)
	for i := 0; i < len(lifted); i += 2 {
		if i+1 == len(lifted) {
			return errLine
		}
		what, err := addrset.ParseRange(lifted[i+1])
		if err != nil {
			return errLine
		}
		out = append(out, edit[place]{place{what, lifted[i]}, nil, lift})
	}
	for _, g := range e.Fleet {
		before, ids := len(out), strings.Fields(g.IDs)
		if err := add(g.Bans, &Ban{Incarnation: g.Incarnation, Since: g.Since, Until: g.Until, By: g.By, Reason: g.Reason}, nil); err != nil || len(out)-before != len(ids) {
			return errLine
		}
		for i, id := range ids {
			out[before+i].of.id = id
		}
	}
	for _, g := range e.Countries {
		var of addrset.Builder
		if err := eachRange(g.Bans, of.AddRange); err != nil || g.Code == "" {
			return errLine
		}
		b := &Ban{Country: &Country{g.Code, g.Data, of.Set()}, Since: g.Since, Until: g.Until, By: g.By, Reason: g.Reason}
		countries = append(countries, edit[string]{g.Code, b, nil})
	}
	r.edits, r.countries = out, countries
	return nil
}

// eachRange reads ranges with a space between.
func eachRange(text string, take func(addrset.Range)) error {
	for word := range strings.SplitSeq(text, " ") {
		if word == "" {
			continue
		}
		r, err := addrset.ParseRange(word)
		if err != nil {
			return errLine
		}
		take(r)
	}
	return nil
}

// sum is what edits come to: the last one of each range counts. Most journals are one
// long sorted list and a few edits behind it.
func sum(edits []edit[place]) []Ban {
	compare := func(a, b edit[place]) int { return a.of.compare(b.of) }
	at := min(1, len(edits))
	for at < len(edits) && compare(edits[at-1], edits[at]) <= 0 {
		at++
	}
	head, tail := edits[:at], edits[at:]
	slices.SortStableFunc(tail, compare) //nolint:forbidigo // hundreds of thousands
	out := make([]Ban, 0, len(edits))
	var last edit[place]
	end := func() {
		if last.ban != nil {
			out = append(out, *last.ban)
			out[len(out)-1].What, out[len(out)-1].ID = last.of.what, last.of.id
		}
	}
	for len(head)+len(tail) > 0 {
		from := &head
		if len(head) == 0 || len(tail) > 0 && compare(tail[0], head[0]) < 0 {
			from = &tail
		}
		if (*from)[0].of != last.of {
			end()
		}
		last, *from = (*from)[0], (*from)[1:]
	}
	end()
	return out
}
