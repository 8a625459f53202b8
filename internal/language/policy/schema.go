package policy

import (
	"encoding/json"
	"fmt"
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

// Schema returns the JSON Schema (draft 2020-12) of a policy file, which
// editors use to complete and check while one types. It is made from the table
// that the parser uses. What needs the meaning of words, such as names and
// sections, only the parser checks.
func Schema() []byte {
	defs := object{}
	for _, s := range shapes {
		defs = append(defs, member{s.name, s.schema()})
	}
	root := object{
		{"$schema", schemaDialect},
		{"title", "Sluice policy"},
		{"$ref", "#/$defs/policy"},
		{"$defs", defs},
	}
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // the table holds texts alone
	}
	return append(out, '\n')
}

func reference(name string) object { return object{{"$ref", "#/$defs/" + name}} }

// schema is one shape: its only form, or any of its forms.
func (s *shape) schema() object {
	var forms []object
	if s.text != nil {
		forms = append(forms, s.text.schema())
	}
	if s.list != "" {
		forms = append(forms, object{{"type", "array"}, {"items", reference(s.list)}})
	}
	if s.keys != nil {
		forms = append(forms, s.mapping())
	}
	if s.values != "" {
		forms = append(forms, object{
			{"type", "object"},
			{"propertyNames", object{{"pattern", namePattern}, {"not", object{{"enum", reserved}}}}},
			{"additionalProperties", reference(s.values)},
		})
	}
	if s.null {
		forms = append(forms, object{{"type", "null"}})
	}
	out := object{{"description", strings.ReplaceAll(s.doc, "`", "'")}}
	if len(forms) == 1 {
		return append(out, forms[0]...)
	}
	return append(out, member{"anyOf", forms})
}

func (t *textForm) schema() object {
	types := strings.Split(t.json, "|")
	var out object
	if len(types) == 1 {
		out = object{{"type", types[0]}}
	} else {
		out = object{{"type", types}}
	}
	if t.pattern != "" {
		out = append(out, member{"pattern", t.pattern})
	}
	if t.enum != nil {
		values := make([]any, len(t.enum))
		for i, e := range t.enum {
			values[i] = e
			if n, err := strconv.Atoi(e); err == nil && types[0] == "integer" {
				values[i] = n
			}
		}
		out = append(out, member{"enum", values})
	}
	if types[0] == "integer" && t.enum == nil {
		out = append(out, member{"minimum", 1})
	}
	return out
}

func (s *shape) mapping() object {
	properties := object{}
	var required []string
	for _, k := range s.keys {
		p := append(reference(k.shape), member{"description", strings.ReplaceAll(k.doc, "`", "'")})
		properties = append(properties, member{k.name, p})
		if k.required && s.name != "policy" {
			required = append(required, k.name)
		}
	}
	out := object{{"type", "object"}, {"properties", properties}, {"additionalProperties", false}}
	if required != nil {
		out = append(out, member{"required", required})
	}
	if s.oneOf != nil {
		var forms []object
		for _, name := range s.oneOf {
			forms = append(forms, object{{"required", []string{name}}})
		}
		out = append(out, member{"oneOf", forms})
	}
	return out
}
