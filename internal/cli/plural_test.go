package cli

import "testing"

func TestPlural(t *testing.T) {
	for want, got := range map[string]string{
		"1 element": plural(1, "element"), "0 elements": plural(0, "element"), "2 elements": plural(uint64(2), "element"),
		"1 other address": plural(1, "other address"), "2 other addresses": plural(2, "other address"),
		"1 class": plural(1, "class"), "3 classes": plural(3, "class"),
		"1 country": plural(1, "country"), "3 countries": plural(3, "country"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
