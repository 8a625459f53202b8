package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/api"
)

// telling is "sluice-controller events" as it runs.
type telling struct {
	*testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func tell(t *testing.T, args ...string) *telling {
	t.Helper()
	cmd := exec.Command("sluice-controller", append([]string{"events"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	ok(t, err)
	ok(t, cmd.Start())
	ends := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { ends.Stop(); _ = cmd.Process.Kill() })
	return &telling{t, cmd, bufio.NewScanner(out)}
}

// until reads lines up to one that has a text.
func (l *telling) until(text string) string {
	l.Helper()
	var all []string
	for l.lines.Scan() {
		if all = append(all, l.lines.Text()); strings.Contains(l.lines.Text(), text) {
			return l.lines.Text()
		}
	}
	l.Fatalf("it never says %s: %q", text, all)
	return ""
}

// TestEvents: they are told as they come, a line each, to whoever goes on where they were too, until
// that is stopped, or the controller ends.
func TestEvents(t *testing.T) {
	f := found(t)
	end := f.serve(t)
	token, _ := run(t, 0, "token", "create", "--repository", f.repository, "--uses", "3", "--dir", f.dir)
	people, programs := tell(t, "--dir", f.dir), tell(t, "--dir", f.dir, "--json")
	people.until("  reset  ")
	var first api.Event
	ok(t, json.Unmarshal([]byte(programs.until(`"reset"`)), &first))
	if first.ID == "" || first.Kind != "reset" {
		t.Errorf("%+v", first)
	}
	for i := range 2 {
		enrol(t, fmt.Sprintf("web-%d", i), token)
	}
	if line := people.until(`"host":"web-1"`); strings.Count(line, "  ") != 2 || !strings.Contains(line, "  host  {") {
		t.Errorf("%q", line)
	}
	var is api.Event
	for is.Kind != "host" {
		ok(t, json.Unmarshal([]byte(programs.until(`"host":"web-`)), &is))
	}
	ok(t, programs.cmd.Process.Signal(os.Interrupt))
	if err := programs.cmd.Wait(); err != nil {
		t.Errorf("it was stopped: %v", err)
	}
	enrol(t, "web-2", token)
	after := tell(t, "--dir", f.dir, "--after", is.ID)
	if line := after.until(`"host":"web-`); strings.Contains(line, is.ID+"  ") {
		t.Errorf("the event that it was to begin after: %s", line)
	}
	after.until(`"host":"web-2"`)
	end()
	for _, l := range []*telling{people, after} {
		for l.lines.Scan() { // what came meanwhile
		}
		if err := l.cmd.Wait(); err != nil {
			t.Errorf("the controller ended: %v", err)
		}
	}
	if _, errOut := run(t, 2, "events", "--dir", f.dir); !strings.Contains(errOut, "hint: ") {
		t.Error(errOut)
	}
}
