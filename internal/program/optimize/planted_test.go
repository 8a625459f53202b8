package optimize

import (
	"path/filepath"
	"testing"

	"sluice/internal/program"
	"sluice/internal/program/mutants"
)

// TestPlantedPassesAreRefuted: a proof that cannot fail proves nothing. Passes that
// are wrong on purpose are behind each of the real ones in turn, and every
// program that they change is found to mean something else.
func TestPlantedPassesAreRefuted(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*/policy.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no examples", err)
	}
	places := []string{"verdict-maps", "stages", "chain-order"}
	if testing.Short() {
		places = places[:1]
	}
	for _, wrong := range mutants.Passes {
		t.Run(wrong.Name, func(t *testing.T) {
			changed := 0
			for _, file := range files {
				for _, behind := range places {
					p := compiled(t, file, nil)
					var right *program.Program
					did := false
					err := Run(p, Options{After: func(pass string, p *program.Program) {
						if pass == behind {
							right = copyOf(p)
							did = wrong.Run(p)
						}
					}})
					if err != nil {
						t.Fatal(err)
					}
					if !did {
						continue
					}
					changed++
					if found := differ(right, p); len(found) == 0 {
						t.Errorf("%s behind %s: the proof finds no packet that is treated otherwise", file, behind)
					} else {
						t.Logf("%s behind %s: %s", filepath.Base(filepath.Dir(file)), behind, found[0])
					}
				}
			}
			if changed == 0 {
				t.Error("it changed none of the examples")
			}
		})
	}
}
