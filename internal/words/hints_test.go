package words

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"sluice/internal/base/packet"
	"sluice/internal/engine/apply"
	"sluice/internal/language/geo"
	"sluice/internal/language/lists"
	"sluice/internal/language/policy"
	"sluice/internal/prove/explain"
	"sluice/internal/prove/query"
)

// A hint is behind the text of the error that it is about, wherever that is in an
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
			"this policy takes about 1 byte of kernel memory while it is loaded, of 2 bytes that are free\n  nothing changed\n  hint: --force loads it anyway"},
		{fmt.Errorf("judge: %w", &query.FaultError{Policy: "p.yaml"}), "judge: trust neither answer: of one packet the proof says that it is , and the policy p.yaml means that it is \n" +
			fmt.Sprintf("packet:  %+v", packet.Packet{}) + "\n  hint: this is a bug in Sluice, not in the policy: please report it with the policy"},
		{&explain.DiffersError{Says: "the packet is dropped"}, "trust neither answer: the compiled rules differ: the packet is dropped\n" +
			"  hint: this is a bug in Sluice, not in the policy: please report it with the policy"},
		{&apply.ClosedError{Cause: missing, Ports: []uint16{22}}, "the confirmed policy cannot be loaded: there is no generation 7\n  hint: sluice history --netns customer7 lists those that are kept\n" +
			"  the host is closed, with ssh open at port 22\n  hint: apply a policy, or sluice rollback --netns customer7 to a generation of sluice history --netns customer7"},
		{&apply.UnreadableError{Generation: 7, Cause: missing, Holds: apply.Running, Boots: "loads it"}, "generation 7, which should run, cannot be read: it is no longer in the state directory\n" +
			"  its rules run as they were loaded\n  the next boot loads it\n  hint: apply the policy again, which writes it again"},
		{&apply.UnreadableError{Generation: 7, Cause: missing, Holds: apply.Foreign, Boots: "loads it"}, "generation 7, which should run, cannot be read: it is no longer in the state directory\n" +
			"  rules of Sluice are loaded that may no longer be its own: sluice restore would close the host except for ssh\n  the next boot loads it\n  hint: apply the policy again, which writes it again"},
		{&apply.RemedyError{Err: errors.New("eth9 is missing"), Remedy: apply.SyncOnceUp}, "eth9 is missing; sluice sync adds it once it is up"},
		{&geo.InUseError{Err: &geo.UnreadableError{Err: errors.New("damaged")}}, "damaged\n  hint: run sluice geo update again, or remove the file to go back to the built-in data\n  hint: --force replaces what cannot be read"},
		{&lists.StaleError{Err: &lists.SizeError{List: "x", Text: "none left"}, Copied: time.Unix(0, 0)}, "x: none left; using the copy of " + time.Unix(0, 0).Format(time.DateTime) +
			"\n  hint: if the list is right, sluice refresh --force accepts it"},
		{policy.Errors{{Message: "nothing is known", Remedy: policy.NameOrGiveFacts}, {Message: "other"}}, (&policy.Error{Message: "nothing is known"}).Error() +
			"\n  hint: name the interface, or compile with the facts of the host (sluice facts --json)\n" + (&policy.Error{Message: "other"}).Error()},
	} {
		if got := Hinted(c.err, here); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// Every remedy that the engine names is one that a user is told how to take.
func TestEveryRemedyHasAHint(t *testing.T) {
	of := func(r string) string {
		return remedy(&apply.RemedyError{Err: errors.New("x"), Remedy: apply.Remedy(r)}, "")
	}
	everyRemedy(t, "../engine/apply/remedy.go", 20, of)
	everyRemedy(t, "../language/policy/errors.go", 5, func(r string) string { return PolicyRemedy(policy.Remedy(r)) })
}

func everyRemedy(t *testing.T, file string, least int, hint func(string) string) {
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(?m)^\t\w+\s+Remedy = "(.+)"$`).FindAllSubmatch(source, -1)
	if len(all) < least {
		t.Fatalf("%d remedies are found", len(all))
	}
	for _, found := range all {
		if hint(string(found[1])) == "" {
			t.Errorf("%s: no hint", found[1])
		}
	}
}
