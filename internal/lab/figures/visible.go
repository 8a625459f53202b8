package figures

import (
	"reflect"
	"strings"
	"unicode"
)

// visible has a dot for each character that is none on paper: what a terminal obeys,
// and what turns the direction of the text around it. Lines and tabs stay.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return '·'
	}, text)
}

// showAll makes all texts of a report visible, which somebody else may have written.
func (r *Report) showAll() { showAll(reflect.ValueOf(r).Elem()) }

func showAll(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString(visible(v.String()))
		}
	case reflect.Slice:
		for i := range v.Len() {
			showAll(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			showAll(v.Field(i))
		}
	}
}
