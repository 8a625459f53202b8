package source

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// schemaDialect is the JSON Schema that editors and validators know best.
const schemaDialect = "https://json-schema.org/draft/2020-12/schema"

// object keeps the order of its keys, which a map does not.
type object []member

type member struct {
	key   string
	value any
}

func (o object) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(m.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s:%s", key, value)
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}

// Schema returns the JSON Schema (draft 2020-12) of the language's files, which
// editors use to complete and check while one types. It is made from the table
// that the parser uses. What needs the meaning of words, such as names and
// sections, only the parser checks.
func (l *Language) Schema() []byte {
	defs := object{}
	for _, s := range l.Shapes {
		defs = append(defs, member{s.Name, l.schema(s)})
	}
	root := object{{"$schema", schemaDialect}, {"title", l.Title}}
	root = append(append(root, l.kinds(l.Others)...), member{"$defs", defs})
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // the table holds texts alone
	}
	return append(out, '\n')
}

// kinds is the schema of a file of any kind, of which some are left to tell.
func (l *Language) kinds(others []Other) object {
	if len(others) == 0 {
		return reference(l.Shapes[0].Name)
	}
	keys := []string{others[0].Key}
	if and := others[0].And; and != "" {
		keys = append(keys, and)
	}
	return object{
		{"if", object{{"type", "object"}, {"required", keys}}},
		{"then", reference(others[0].Shape)},
		{"else", l.kinds(others[1:])},
	}
}

func reference(name string) object { return object{{"$ref", "#/$defs/" + name}} }

// schema is one shape: its only form, or any of its forms.
func (l *Language) schema(s *Shape) object {
	var forms []object
	if s.Text != nil {
		forms = append(forms, s.Text.schema())
		for _, r := range l.renamed(s) {
			if s.Key(r.New) == nil {
				forms = append(forms, append(object{{"const", r.Old}}, deprecated(&r)...))
			}
		}
	}
	if s.List != "" {
		forms = append(forms, object{{"type", "array"}, {"items", reference(s.List)}})
	}
	if s.Keys != nil {
		forms = append(forms, l.mapping(s))
	}
	if s.Values != "" {
		names := object{{"pattern", l.Names}}
		if len(l.Reserved) > 0 {
			names = append(names, object{{"not", object{{"enum", l.Reserved}}}}...)
		}
		forms = append(forms, object{
			{"type", "object"},
			{"propertyNames", names},
			{"additionalProperties", reference(s.Values)},
		})
	}
	if s.Null {
		forms = append(forms, object{{"type", "null"}})
	}
	out := object{{"description", strings.ReplaceAll(s.Doc, "`", "'")}}
	if len(forms) == 1 {
		return append(out, forms[0]...)
	}
	return append(out, member{"anyOf", forms})
}

func (t *Scalar) schema() object {
	types := strings.Split(t.JSON, "|")
	var out object
	if len(types) == 1 {
		out = object{{"type", types[0]}}
	} else {
		out = object{{"type", types}}
	}
	if t.Pattern != "" {
		out = append(out, member{"pattern", t.Pattern})
	}
	if t.Enum != nil {
		values := make([]any, len(t.Enum))
		for i, e := range t.Enum {
			values[i] = e
			if n, err := strconv.Atoi(e); err == nil && types[0] == "integer" {
				values[i] = n
			}
		}
		out = append(out, member{"enum", values})
	}
	if types[0] == "integer" && t.Enum == nil {
		out = append(out, member{"minimum", 1})
	}
	if t.Known != nil {
		out = append(out, member{"examples", t.Known})
	}
	return out
}

func (l *Language) mapping(s *Shape) object {
	properties := object{}
	var required []string
	for _, k := range s.Keys {
		p := append(reference(k.Shape), member{"description", strings.ReplaceAll(k.Doc, "`", "'")})
		properties = append(properties, member{k.Name, p})
		old := l.oldNames(s, k.Name)
		for _, r := range old {
			properties = append(properties, member{r.Old, append(reference(k.Shape), deprecated(&r)...)})
		}
		// The parser asks for what has two names.
		if k.Required && len(old) == 0 && (s != l.Shapes[0] || !l.Includes) {
			required = append(required, k.Name)
		}
	}
	out := object{{"type", "object"}, {"properties", properties}, {"additionalProperties", false}}
	if required != nil {
		out = append(out, member{"required", required})
	}
	if s.OneOf != nil {
		var forms []object
		for _, name := range s.OneOf {
			forms = append(forms, object{{"required", []string{name}}})
			for _, r := range l.oldNames(s, name) {
				forms = append(forms, object{{"required", []string{r.Old}}})
			}
		}
		out = append(out, member{"oneOf", forms})
	}
	return out
}

// renamed are the old words of a shape that are taken yet.
func (l *Language) renamed(s *Shape) (out []Renamed) {
	for _, r := range Renames {
		if r.Of == l.Title && r.Shape == s.Name && !r.Over() {
			out = append(out, r)
		}
	}
	return out
}

// oldNames are those of a key.
func (l *Language) oldNames(s *Shape, key string) []Renamed {
	return slices.DeleteFunc(l.renamed(s), func(r Renamed) bool { return r.New != key })
}

// deprecated is what editors cross out.
func deprecated(r *Renamed) object {
	return object{{"deprecated", true}, {"description", strings.ReplaceAll(r.String(), "\"", "'")}}
}
