package program

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestEffectNamesWhatActionsName fills every kind of action and looks for all that it
// names, chains, sets, counters, addresses, in its effect: what is not there is not
// checked, and is dropped as unused.
func TestEffectNamesWhatActionsName(t *testing.T) {
	others := []string{"Name", "Prefix", "Rate", "Per", "Timeout", "BanTimeout", "Asks", "Max", "Once", "Remove", "Bit", "Value", "Mask", "Ports"}
	for _, kind := range kinds {
		typ := reflect.TypeOf(kind)
		if typ.Kind() != reflect.Struct {
			continue
		}
		for i := range typ.NumField() {
			field := typ.Field(i)
			v := reflect.New(typ).Elem()
			want := "name-of-it"
			switch f := v.Field(i); f.Interface().(type) {
			case netip.Addr:
				want = "192.0.2.7"
				f.Set(reflect.ValueOf(netip.MustParseAddr(want)))
			case netip.Prefix:
				want = "192.0.2.0/28"
				f.Set(reflect.ValueOf(netip.MustParsePrefix(want)))
			case []Field:
				want = string(DSCP)
				f.Set(reflect.ValueOf([]Field{DSCP}))
			case uint16:
				want = "10007"
				f.SetUint(10007)
			case SourceKey:
				want = string(Destination)
				f.SetString(string(PerDestination))
			case string:
				if slices.Contains(others, field.Name) {
					continue
				}
				f.SetString(want)
			default:
				if !slices.Contains(others, field.Name) {
					t.Errorf("%s.%s: say here what the effect has of it", typ.Name(), field.Name)
				}
				continue
			}
			a := v.Interface().(Action)
			if e := fmt.Sprintf("%+v", EffectOf(a)); !strings.Contains(e, want) {
				t.Errorf("%s.%s is not in its effect: %s", typ.Name(), field.Name, e)
			}
		}
	}
}
