package command

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"testing"

	"sluice/internal/engine/apply"
)

// A hint stands behind the text of the error that it is about, wherever that is in an
// error that wraps it.
func TestHinted(t *testing.T) {
	missing := &apply.MissingError{Generation: 7}
	const here = " --netns customer7"
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("no hint"), "no hint"},
		{missing, "there is no generation 7\n  hint: sluice history --netns customer7 lists those that are kept"},
		{fmt.Errorf("read: %w", missing), "read: there is no generation 7\n  hint: sluice history --netns customer7 lists those that are kept"},
		{fmt.Errorf("%w\n  nothing changed", missing), "there is no generation 7\n  hint: sluice history --netns customer7 lists those that are kept\n  nothing changed"},
		{errors.Join(missing, &apply.MemoryError{Need: 1, Available: 2}), "there is no generation 7\n  hint: sluice history --netns customer7 lists those that are kept\n" +
			"this policy takes about 1 bytes of kernel memory while it is loaded, of 2 bytes that are free\n  nothing changed\n  hint: --force loads it all the same"},
		{&apply.ClosedError{Cause: missing, Ports: []uint16{22}}, "the confirmed policy cannot be loaded: there is no generation 7\n  hint: sluice history --netns customer7 lists those that are kept\n" +
			"  the host is closed, with ssh open at port 22\n  hint: apply a policy, or sluice rollback --netns customer7 to a generation of sluice history --netns customer7"},
		{&apply.UnreadableError{Generation: 7, Cause: missing, Holds: apply.Running, Boots: "loads it"}, "generation 7, which should run, cannot be read: it is not in the state any more\n" +
			"  its rules run as they were loaded\n  the next boot loads it\n  hint: apply the policy again, which writes it anew"},
	} {
		if got := Hinted(c.err, here); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// Every remedy that the engine names is one that a user is told how to take.
func TestEveryRemedyHasAHint(t *testing.T) {
	source, err := os.ReadFile("../../engine/apply/remedy.go")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(?m)^\t\w+\s+Remedy = "(.+)"$`).FindAllSubmatch(source, -1)
	if len(all) < 20 {
		t.Fatalf("%d remedies are found", len(all))
	}
	for _, found := range all {
		if remedy(&apply.RemedyError{Err: errors.New("x"), Remedy: apply.Remedy(found[1])}, "") == "" {
			t.Errorf("%s: no hint", found[1])
		}
	}
}
