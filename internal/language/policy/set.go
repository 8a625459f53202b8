package policy

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"golang.org/x/text/language"
)

// contentKeys are the keys of a set that say what is in it.
var contentKeys = []string{"addresses", "file", "url", "countries", "continents", "union", "endpoints"}

func (f *file) set(e entry) {
	s := &Set{Pos: f.src.at(e.key), Name: e.name}
	if f.taken(e, "set") {
		return
	}
	f.sets[e.name] = s
	f.policy.Sets = append(f.policy.Sets, s)
	if n := e.value; n.Kind != yaml.MappingNode {
		if isNull(n) {
			f.fail(f.src.at(e.key), "write a list of addresses, or [] for none", "set %s is empty", quote(e.name))
			return
		}
		s.Elements = f.addresses(n, "set "+quote(e.name))
		return
	}
	by := map[string]entry{}
	var content []string
	before := len(f.errs)
	for _, k := range f.known(e.value, shapeOf("set")) {
		by[k.name] = k
		if slices.Contains(contentKeys, k.name) {
			content = append(content, k.name)
		}
		f.setKey(s, k)
	}
	f.setContent(e, s, by, content, len(f.errs) == before)
	f.after(func() { f.checkSet(s) })
}

func (f *file) setKey(s *Set, k entry) {
	switch k.name {
	case "addresses":
		s.Elements = f.addresses(k.value, k.name)
	case "file", "url":
		text, ok := f.text(k.value, k.name)
		if !ok {
			return
		}
		w := &Word{f.src.at(k.value), text}
		if k.name == "file" {
			s.File = w
		} else if f.checked(k.value, checkURL(text)) {
			s.URL = w
		}
	case "refresh":
		s.Refresh = f.duration(k.value, "refresh")
	case "countries":
		s.Countries = f.codes(k.value, k.name, checkCountry)
	case "continents":
		s.Continents = f.codes(k.value, k.name, checkContinent)
	case "union":
		s.Union = f.namesOf(k.value, k.name)
	case "except":
		s.Except = f.namesOf(k.value, k.name)
	case "endpoints":
		f.endpoints(s, k.value)
	case "counters":
		s.Counters, _ = f.flag(k.value, "counters")
	}
}

// setContent checks which keys stand together.
func (f *file) setContent(e entry, s *Set, by map[string]entry, content []string, clean bool) {
	geo := slices.DeleteFunc(slices.Clone(content), func(name string) bool { return name != "countries" && name != "continents" })
	switch {
	case len(content) == 0:
		if clean {
			f.fail(f.src.at(e.key), "give it one of "+strings.Join(contentKeys, ", "), "set %s does not say what is in it", quote(e.name))
		}
		return
	case len(content)-len(geo) > 1 || len(content) > len(geo) && len(geo) > 0:
		f.fail(f.src.at(by[content[1]].key), "define two sets, and a third with union", "%s and %s in one set", content[0], content[1])
	}
	if k, ok := by["refresh"]; ok && by["url"].key == nil {
		f.fail(f.src.at(k.key), "", "refresh without url")
	}
	if k, ok := by["except"]; ok && by["endpoints"].key != nil {
		f.fail(f.src.at(k.key), "", "except cannot be used with endpoints")
	}
	if k, ok := by["counters"]; ok && s.Counters && by["endpoints"].key != nil {
		f.fail(f.src.at(k.key), "", "counters cannot be used with endpoints")
	}
	if k := by[content[0]]; clean && len(s.Elements)+len(s.Countries)+len(s.Continents)+len(s.Union)+len(s.Endpoints) == 0 && s.File == nil && s.URL == nil && content[0] != "addresses" && content[0] != "endpoints" {
		f.fail(f.src.at(k.key), "", "%s is empty", k.name)
	}
}

func (f *file) codes(n *yaml.Node, what string, check func(string) (string, *problem)) []Word {
	var out []Word
	for _, c := range f.list(n, what) {
		s, ok := f.text(c, "a code")
		if !ok {
			continue
		}
		code, p := check(s)
		if !f.checked(c, p) {
			continue
		}
		if slices.ContainsFunc(out, func(w Word) bool { return w.Text == code }) {
			f.fail(f.src.at(c), "", "%s stands twice", code)
			continue
		}
		f.canon[c] = code
		out = append(out, Word{f.src.runeAt(c, 0), code})
	}
	return out
}

func checkCountry(s string) (string, *problem) {
	code := strings.ToUpper(s)
	region, err := language.ParseRegion(code)
	switch {
	case code == "UK":
		return "", problemf("write GB", "unknown country %s", quote(s))
	case code == "EU":
		return "", problemf("write continents: [EU]", "%s is not a country", quote(s))
	case len(code) == 2 && err == nil && region.IsCountry() && region.String() == code:
		return code, nil
	}
	hint := "write the ISO 3166-1 code of two letters, as in IT"
	if known := countryNamed(s); known != "" {
		hint = "write " + known
	} else if len(code) == 3 && err == nil && region.IsCountry() {
		hint = "write " + region.String()
	}
	return "", problemf(hint, "unknown country %s", quote(s))
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
	return "", problemf(hint, "unknown continent %s", quote(s))
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
			case other != nil && len(other.Endpoints) > 0:
				f.fail(w.Pos, "", "%s is a set of endpoints, which cannot be used in %s", quote(w.Text), list.word)
			case other != nil:
				if path := f.setCircle(other, s); path != nil && s == f.firstOf(path) {
					f.fail(w.Pos, "", "sets are made of each other in a circle: %s → %s", s.Name, strings.Join(path, " → "))
				}
			case f.zones[w.Text] != nil:
				f.fail(w.Pos, "name a set", "%s is a zone, which cannot be used in %s", quote(w.Text), list.word)
			case !f.unread:
				f.fail(w.Pos, "", "unknown set %s%s", quote(w.Text), didYouMean(w.Text, sortedKeys(f.sets)))
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
