package program

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// placed says where the effect of an action has what a field of the action names.
var placed = map[string]string{
	"Jump.Chain": "Calls", "Goto.Chain": "Goes", "VerdictMap.Set": "Map", "VerdictMap.Key": "Reads", "Count.Counter": "Counts",
	"Limit.Per": "Reads", "Limit.Table": "Fills", "Limit.FullCounter": "CountsFull", "Limit.Ban": "Fills Bans", "Limit.NeverBan": "Asks", "Limit.Over": "Goes",
	"ConnectionLimit.Per": "Reads", "ConnectionLimit.Table": "Fills", "ConnectionLimit.FullCounter": "CountsFull",
	"SetAdd.Set": "Fills", "SetAdd.Key": "Reads", "SetAdd.Fields": "Reads",
	"DNAT.To": "Rewrites.To", "DNAT.Port": "Rewrites.Port", "Redirect.Port": "Rewrites.Port", "SNAT.To": "Rewrites.To",
	"DNATPrefix.From": "Rewrites.From", "DNATPrefix.To": "Rewrites.As", "SNATPrefix.From": "Rewrites.From", "SNATPrefix.To": "Rewrites.As",
	"MapSource.From": "Rewrites.From", "MapSource.To": "Rewrites.As", "MapDestination.From": "Rewrites.From", "MapDestination.To": "Rewrites.As",
	"Offload.Flowtable": "Flowtable",
}

// TestEffectNamesWhatActionsName fills every kind of action and looks for all that it
// names, chains, sets, counters, addresses, where its effect has to have it, and nowhere
// else: what is not there is not checked, and is dropped as unused.
func TestEffectNamesWhatActionsName(t *testing.T) {
	others := []string{"Name", "Prefix", "Rate", "Per", "Timeout", "BanTimeout", "Asks", "Max", "Once", "Remove", "Bit", "Value", "Mask", "Ports", "Group"}
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
				if slices.Contains(others, field.Name) {
					continue
				}
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
			name := typ.Name() + "." + field.Name
			if got := strings.Join(where(reflect.ValueOf(EffectOf(v.Interface().(Action))), "", want), " "); got == "" || got != placed[name] {
				t.Errorf("%s is in %q of its effect, want %q", name, got, placed[name])
			}
		}
	}
}

// where names the fields of an effect that have a text.
func where(effect reflect.Value, before, text string) (names []string) {
	for i := range effect.NumField() {
		name := before + effect.Type().Field(i).Name
		switch f := effect.Field(i); {
		case f.Type() == reflect.TypeFor[Rewriting]():
			names = append(names, where(f, name+".", text)...)
		case strings.Contains(fmt.Sprint(f), text):
			names = append(names, name)
		}
	}
	return names
}

// A limit that only asks about its source fills no set.
func TestEffectOfAskingLimit(t *testing.T) {
	e := EffectOf(Limit{Per: PerSource, Table: "limits", NeverBan: "spared", Asks: true})
	if !slices.Equal(e.Asks, []string{"limits", "spared"}) || len(e.Fills) > 0 || e.Bans != "" {
		t.Errorf("%+v", e)
	}
}
