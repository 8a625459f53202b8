package english_test

import (
	"math"
	"testing"

	"sluice/internal/base/english"
)

func TestPlural(t *testing.T) {
	for want, got := range map[string]string{
		"1 element": english.Plural(1, "element"), "0 elements": english.Plural(0, "element"), "2 elements": english.Plural(uint64(2), "element"),
		"1 other address": english.Plural(1, "other address"), "2 other addresses": english.Plural(2, "other address"),
		"1 class": english.Plural(1, "class"), "3 classes": english.Plural(3, "class"),
		"1 country": english.Plural(1, "country"), "3 countries": english.Plural(3, "country"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestGrouped(t *testing.T) {
	for want, got := range map[string]string{
		"0": english.Grouped(0), "999": english.Grouped(999), "1,000": english.Grouped(1000), "1,234,567": english.Grouped(1234567),
		"18,446,744,073,709,551,615": english.Grouped(uint64(math.MaxUint64)),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
