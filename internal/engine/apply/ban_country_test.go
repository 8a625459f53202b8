package apply

import (
	"strings"
	"testing"
	"time"
)

// The ban of a country is one, whatever else is banned of it, and outlives what is applied.
func TestBansOfCountries(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a bans"})
	l.must(command{Op: "ban", What: "KP SM 192.0.2.1 198.51.100.7 198.51.100.0/24"})
	all := "KP SM 192.0.2.1 198.51.100.7 198.51.100.0/24"
	l.wantBans(all)
	if b := l.bans()["KP"]; b.Ranges != 3 || !b.Data.Equal(time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)) || b.Reason != "tried" {
		t.Errorf("%+v", b)
	}
	l.must(command{Op: "apply", Policy: "b bans"})
	l.wantBans(all)
	l.must(command{Op: "rollback", N: -1})
	l.wantBans(all)
	l.must(command{Op: "flush"})
	l.must(command{Op: "restore"})
	l.wantBans(all)

	// What is left when parts of it, and then the rest, are lifted.
	l.must(command{Op: "unban", What: "192.0.2.1 198.51.100.0/24"})
	l.wantBans("KP SM")
	for what, want := range map[string]string{
		"198.51.100.9":            "not there [198.51.100.9 (it is banned with KP)]",
		"198.51.0.0-198.51.100.9": "not there [198.51.0.0-198.51.100.9 (a part of it is banned with KP)]",
		"NO":                      "not there [NO]",
	} {
		if out := l.must(command{Op: "unban", What: what}); !strings.Contains(out, want) {
			t.Errorf("unban %s: %s, want %s", what, out, want)
		}
	}
	l.wantBans("KP SM")

	// A second ban takes the place of the first, with what the country has then.
	l.must(command{Op: "ban", What: "KP", N: 1})
	l.wantBans("KP SM")
	if b := l.bans()["KP"]; b.Ranges != 2 {
		t.Errorf("%+v", b)
	}
	if out := l.must(command{Op: "unban", What: "192.0.2.1"}); !strings.Contains(out, "not there [192.0.2.1]") {
		t.Error(out)
	}
	// Of a country that lies within, all is lifted.
	l.must(command{Op: "unban", What: "192.0.2.0/24"})
	l.wantBans("KP")
	l.must(command{Op: "unban", What: "KP"})
	l.wantBans("")
	l.must(command{Op: "ban", What: "KP LI", For: time.Hour})
	l.wantBans("KP LI")
	l.must(command{Op: "unban", What: "0.0.0.0/0 ::/0"})
	l.wantBans("")

	// What never-ban spares all of is refused, and who is not known.
	if out := l.must(command{Op: "ban", What: "SM 198.51.100.8"}); !strings.Contains(out, "banned 2") {
		t.Error(out)
	}
	if out, err := l.run(command{Op: "ban", What: "NO"}); err == nil || !strings.Contains(out, "nothing is known of NO") {
		t.Errorf("%v %s", err, out)
	}
	l.wantBans("SM 198.51.100.8")
}
