package apply

import "testing"

func TestNoDefaultRoute(t *testing.T) {
	for want, last := range map[string][]string{
		"there is no default route: the last known one stays, by wan1":                {"wan1"},
		"there is no default route: the last known ones stay, by wan1 and wan2":       {"wan1", "wan2"},
		"there is no default route: the last known ones stay, by ppp0, wan1 and wan2": {"ppp0", "wan1", "wan2"},
	} {
		if got := NoDefaultRoute(last); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
