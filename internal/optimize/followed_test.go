package optimize

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/compile"
	"sluice/internal/host"
	"sluice/internal/policy"
	"sluice/internal/program"
	"sluice/internal/resolve"
)

// TestNothingRestsOnTheDefaultRoute: whichever interfaces default routes leave by when a
// policy is compiled, those that other zones name among them, the program is the same but
// for what the set holds that is edited in place. So no pass has used it.
func TestNothingRestsOnTheDefaultRoute(t *testing.T) {
	m := newMaker(t)
	asked := 0
	for range 60 {
		text := strings.Replace(m.policy(), "{ interfaces: [eth0] }", "{ interfaces: [default-route] }", 1)
		file := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var first string
		for i, route := range [][]string{{"eth0"}, {"lan0"}, {"lo"}, {"eth0", "eth1", "lan0"}, {"other"}} {
			p, err := policy.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			facts := host.Facts{Known: true, DefaultRoute: route, EphemeralFrom: 32768, EphemeralTo: 60999}
			r, err := resolve.Resolve(p, resolve.Options{Facts: facts})
			if err != nil {
				t.Fatal(err)
			}
			out, err := compile.Compile(r)
			if err != nil {
				t.Fatal(err)
			}
			if err := Run(out, Options{}); err != nil {
				t.Fatal(err)
			}
			if s := out.Set(program.DefaultRouteSet); s != nil {
				asked++
				if fmt.Sprint(s.Held().Names) != fmt.Sprint(route) {
					t.Errorf("the set holds %v, want %v", s.Held().Names, route)
				}
				s.Hold(program.Held{})
			}
			switch got := out.Text(); {
			case i == 0:
				first = got
			case got != first:
				t.Fatalf("with the default route by %v the program is another one\n%s\n--- first\n%s\n--- now\n%s", route, text, first, got)
			}
		}
	}
	if asked == 0 {
		t.Error("no policy asked for the default route")
	}
}
