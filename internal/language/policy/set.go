package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"golang.org/x/text/language"

	"sluice/internal/language/source"
)

// contentKeys are the keys of a set that say what is in it.
var contentKeys = []string{"addresses", "file", "url", "countries", "continents", "union", "endpoints", "hosts", "guests"}

func (f *file) set(e source.Entry) {
	s := &Set{Pos: f.At(e.Key), Name: e.Name}
	if f.taken(e, "set") {
		return
	}
	f.sets[e.Name] = s
	f.policy.Sets = append(f.policy.Sets, s)
	if n := e.Value; n.Kind != yaml.MappingNode {
		if source.IsNull(n) {
			f.fail(f.At(e.Key), "write a list of addresses, or [] for none", "set %s is empty", source.Quote(e.Name))
			return
		}
		s.Elements = f.addresses(n, "set "+source.Quote(e.Name))
		return
	}
	by := map[string]source.Entry{}
	var content []string
	before := len(f.errs)
	for _, k := range f.Known(e.Value, grammar.Of("set")) {
		by[k.Name] = k
		if slices.Contains(contentKeys, k.Name) {
			content = append(content, k.Name)
		}
		f.setKey(s, k)
	}
	f.setContent(e, s, by, content, len(f.errs) == before)
	if v := f.view; v != nil && v.Lists != nil && s.URL != nil && (s.Refresh == 0 || s.Live) {
		s.File = &Word{v.Lists.Pos, filepath.Join(v.Lists.Text, SignedList(s.Name, s.URL.Text))}
	}
	f.after(func() { f.checkSet(s) })
}

// SignedList is the name of the file, in the folder of a view's lists, of what a set's URL
// served when the policy was signed.
func SignedList(set, url string) string {
	sum := sha256.Sum256([]byte(url))
	return set + "-" + hex.EncodeToString(sum[:6]) + ".txt"
}

func (f *file) setKey(s *Set, k source.Entry) {
	switch k.Name {
	case "addresses":
		s.Elements = f.addresses(k.Value, k.Name)
	case "file", "url":
		text, ok := f.Text(k.Value, k.Name)
		if !ok {
			return
		}
		w := &Word{f.At(k.Value), text}
		if k.Name == "file" {
			s.File = w
		} else if f.checked(k.Value, checkURL(text)) {
			s.URL = w
		}
	case "refresh":
		s.Refresh = f.duration(k.Value, "refresh")
	case "countries":
		s.Countries = f.codes(k.Value, k.Name, checkCountry)
	case "continents":
		s.Continents = f.codes(k.Value, k.Name, checkContinent)
	case "union":
		s.Union = f.namesOf(k.Value, k.Name)
	case "except":
		s.Except = f.namesOf(k.Value, k.Name)
	case "endpoints":
		f.endpoints(s, k.Value)
	case "hosts", "guests":
		f.group(s, k)
	case "live":
		s.Live, _ = f.Flag(k.Value, "live")
	case "within":
		s.Within = f.addresses(k.Value, "within")
	case "counters":
		s.Counters, _ = f.Flag(k.Value, "counters")
	case "filled-by":
		text, ok := f.Text(k.Value, k.Name)
		if s.Others = ok; ok && text != "other" {
			f.fail(f.At(k.Value), "write other", "filled-by must be other, not %s", source.Quote(text))
		}
	case "living":
		s.Living, _ = f.Flag(k.Value, "living")
	}
}

// setContent checks which keys stand together.
func (f *file) setContent(e source.Entry, s *Set, by map[string]source.Entry, content []string, clean bool) {
	if clean {
		f.groupKeys(s, by)
	}
	geo := slices.DeleteFunc(slices.Clone(content), func(name string) bool { return name != "countries" && name != "continents" })
	if s.Others {
		for _, word := range append(slices.Clone(contentKeys), "refresh", "except", "counters", "living") {
			if k, is := by[word]; is {
				f.fail(f.At(k.Key), "define a separate set for it, and name both in the rule", "%s cannot be used with filled-by", word)
			}
		}
		return
	}
	if s.Living && f.isLiving(s, by, content) {
		return
	}
	switch {
	case len(content) == 0:
		if clean {
			f.fail(f.At(e.Key), "give it one of "+strings.Join(contentKeys, ", "), "set %s has no content", source.Quote(e.Name))
		}
		return
	case len(content)-len(geo) > 1 || len(content) > len(geo) && len(geo) > 0:
		f.fail(f.At(by[content[1]].Key), "define two sets, and a third with union", "both %s and %s in one set", content[0], content[1])
	}
	if k, ok := by["refresh"]; ok && by["url"].Key == nil {
		f.fail(f.At(k.Key), "", "refresh without url")
	}
	if s.Live {
		f.isLive(s, by)
	}
	if k, ok := by["except"]; ok && by["endpoints"].Key != nil {
		f.fail(f.At(k.Key), "", "except cannot be used with endpoints")
	}
	if k, ok := by["counters"]; ok && s.Counters && by["endpoints"].Key != nil {
		f.fail(f.At(k.Key), "", "counters cannot be used with endpoints")
	}
	if k := by[content[0]]; clean && len(s.Elements)+len(s.Countries)+len(s.Continents)+len(s.Union)+len(s.Endpoints) == 0 && s.File == nil && s.URL == nil && !s.IsGroup() && content[0] != "addresses" && content[0] != "endpoints" {
		f.fail(f.At(k.Key), "", "%s is empty", k.Name)
	}
}

// isLiving says that a living set may be what it is, and reports what else it cannot be.
func (f *file) isLiving(s *Set, by map[string]source.Entry, content []string) bool {
	for _, word := range append(slices.Clone(contentKeys), "refresh", "except", "counters") {
		if k, is := by[word]; is && word != "addresses" && (word != "counters" || s.Counters) {
			f.fail(f.At(k.Key), "define a separate set for it, and name both in the rule", "%s cannot be used with living", word)
		}
	}
	return len(content) == 0 || content[0] == "addresses"
}

// mayLive reports a living set in a place that commands cannot change, and one that
// another program fills.
func (f *file) mayLive(name string, pos Pos, where string) {
	if s := f.sets[name]; s != nil && s.Living {
		f.fail(pos, "use a set that is not living", "living set %s cannot be used in %s", source.Quote(name), where)
	}
	f.mayFill(name, pos, where)
}

// mayFill reports a set that another program fills where what is in it has to be known.
func (f *file) mayFill(name string, pos Pos, where string) {
	if s := f.sets[name]; s != nil && s.Others {
		f.fail(pos, "use it only in rules of input, output or forward", "%s is filled by another program and cannot be used in %s", source.Quote(name), where)
	}
}

// mayFillAll is mayFill for all names of a side.
func (f *file) mayFillAll(w *Who, where string) {
	if w == nil {
		return
	}
	for _, item := range w.Items {
		f.after(func() { f.mayFill(item.Name, item.Pos, where) })
	}
}

func (f *file) codes(n *yaml.Node, what string, check func(string) (string, *problem)) []Word {
	var out []Word
	for _, c := range f.List(n, what) {
		s, ok := f.Text(c, "a code")
		if !ok {
			continue
		}
		code, p := check(s)
		if !f.checked(c, p) {
			continue
		}
		if slices.ContainsFunc(out, func(w Word) bool { return w.Text == code }) {
			f.fail(f.At(c), "", "duplicate %s", code)
			continue
		}
		f.canon[c] = code
		out = append(out, Word{f.RuneAt(c, 0), code})
	}
	return out
}

func checkCountry(s string) (string, *problem) {
	code := strings.ToUpper(s)
	region, err := language.ParseRegion(code)
	switch {
	case code == "UK":
		return "", problemf("write GB", "unknown country %s", source.Quote(s))
	case code == "EU":
		return "", problemf("write continents: [EU]", "%s is not a country", source.Quote(s))
	case len(code) == 2 && err == nil && region.IsCountry() && region.String() == code:
		return code, nil
	}
	hint := "write the ISO 3166-1 code of two letters, as in IT"
	if known := countryNamed(s); known != "" {
		hint = "write " + known
	} else if len(code) == 3 && err == nil && region.IsCountry() {
		hint = "write " + region.String()
	}
	return "", problemf(hint, "unknown country %s", source.Quote(s))
}

var continents = []string{"AF", "AN", "AS", "EU", "NA", "OC", "SA"}

var continentNames = map[string]string{
	"africa": "AF", "antarctica": "AN", "asia": "AS", "europe": "EU", "north america": "NA", "northamerica": "NA",
	"oceania": "OC", "australia": "OC", "south america": "SA", "southamerica": "SA", "america": "NA or SA",
}

func checkContinent(s string) (string, *problem) {
	code := strings.ToUpper(s)
	if slices.Contains(continents, code) {
		return code, nil
	}
	hint := "write one of " + strings.Join(continents, ", ")
	if known := continentNames[strings.ToLower(s)]; known != "" {
		hint = "write " + known
	}
	return "", problemf(hint, "unknown continent %s", source.Quote(s))
}

// checkSet checks the names in a set, and that no set is made of itself.
func (f *file) checkSet(s *Set) {
	for _, list := range []struct {
		word  string
		names []Word
	}{{"union", s.Union}, {"except", s.Except}} {
		for _, w := range list.names {
			other := f.sets[w.Text]
			switch {
			case other != nil && (other.Living || other.Others):
				f.mayLive(w.Text, w.Pos, list.word)
			case other != nil && len(other.Endpoints) > 0:
				f.fail(w.Pos, "", "set of endpoints %s cannot be used in %s", source.Quote(w.Text), list.word)
			case other != nil:
				if path := f.setCircle(other, s); path != nil && s == f.firstOf(path) {
					f.fail(w.Pos, "remove one of them from another, in its "+list.word, "sets contain each other in a loop: %s → %s%s", s.Name, strings.Join(path, " → "), f.inOthers(s, path))
				}
			case f.zones[w.Text] != nil:
				f.fail(w.Pos, "name a set", "zone %s cannot be used in %s", source.Quote(w.Text), list.word)
			case !f.unread && !f.required[w.Text]:
				f.fail(w.Pos, f.elsewhere(w.Text), "unknown set %s%s", source.Quote(w.Text), source.DidYouMean(w.Text, sortedKeys(f.sets)))
			}
		}
	}
}

// setCircle returns the names on the way from one set to another that it is
// made of, both included; nil when there is none.
func (f *file) setCircle(from, to *Set) []string {
	return wayTo(from.Name, to.Name, func(name string) (next []string) {
		for _, w := range slices.Concat(f.sets[name].Union, f.sets[name].Except) {
			if f.sets[w.Text] != nil {
				next = append(next, w.Text)
			}
		}
		return next
	})
}

// firstOf returns the set of a circle that is defined first, so that a circle
// is reported once.
func (f *file) firstOf(names []string) *Set {
	for _, s := range f.policy.Sets {
		if slices.Contains(names, s.Name) {
			return s
		}
	}
	return nil
}

// inOthers is where those sets of a circle are that are in other files.
func (f *file) inOthers(s *Set, names []string) string {
	text := ""
	for _, name := range names {
		if at := f.sets[name].Pos; at.File != s.Pos.File {
			text += fmt.Sprintf(", see %s", at)
		}
	}
	return text
}
