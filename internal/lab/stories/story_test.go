package stories

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/kernels"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
)

// built are the real programs sluice and sluice-lab, built from here.
func built(t *testing.T) (sluice, lab string) {
	t.Helper()
	dir := t.TempDir()
	if text, err := exec.Command("go", "build", "-o", dir, "sluice/cmd/...").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, text)
	}
	return filepath.Join(dir, "sluice"), filepath.Join(dir, "sluice-lab")
}

func TestStoriesAreNumbered(t *testing.T) {
	for i, s := range All() {
		if s.Number != i+1 || s.Title == "" || s.Incident == "" || s.Run == nil {
			t.Errorf("story %d of the list is %+v", i+1, s)
		}
	}
	if _, there := Find(6); there {
		t.Error("there is a story 6")
	}
}

// TestMachineIsNotTouchedUnasked plays the stories that set what belongs to the whole
// machine, without leave.
func TestMachineIsNotTouchedUnasked(t *testing.T) {
	asked := 0
	for _, s := range All() {
		if !s.Machine {
			continue
		}
		asked++
		s.Run = func(context.Context, *Stage) error {
			t.Errorf("story %d began", s.Number)
			return nil
		}
		if _, err := Run(t.Context(), s, Options{}); !errors.Is(err, ErrMachine) {
			t.Errorf("story %d: %v, want ErrMachine", s.Number, err)
		}
	}
	if asked != 2 {
		t.Errorf("%d stories set the machine's table, want 2", asked)
	}
}

// TestStageMakesAPage plays a story of its own: a web server behind Sluice, loaded and
// watched, with a goal that is reached and one that is not.
func TestStageMakesAPage(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Nftables, testnet.Program("nginx"))
	binary, lab := built(t)
	var said []string
	folder := ""
	played := Story{Number: 9, Title: "a test", Incident: "It was so.", Run: func(ctx context.Context, s *Stage) error {
		folder = s.Dir
		w, err := s.webSite("web", "Sluice")
		if err != nil {
			return err
		}
		bare, err := s.webSite("bare", "bare")
		if err != nil {
			return err
		}
		file, err := s.Answer("web.yaml", "The answer", answerOne)
		if err != nil {
			return err
		}
		if _, err := s.Apply(ctx, w.host, file); err != nil {
			return err
		}
		c, err := s.watch(ctx, w, Asking{Connections: 4, NewConnections: true, Requests: 40, For: 20 * time.Second, Timeout: 10 * time.Second, Every: time.Second})
		if err != nil {
			return err
		}
		if c.asked.Answered != 40 || len(c.asked.Failed) > 0 {
			t.Errorf("%d answered, failed: %v", c.asked.Answered, c.asked.Failed)
		}
		if most := c.mostEntries(); most != 0 {
			t.Errorf("untracked web traffic has %.0f entries", most)
		}
		// What is tracked is seen, so that none of the above says something.
		bare.host.Nft("table ip t { chain c { type filter hook input priority 0; ct state established accept; }; }")
		tracked, err := s.watch(ctx, bare, Asking{Connections: 4, NewConnections: true, Requests: 40, For: 20 * time.Second, Timeout: 10 * time.Second, Every: time.Second})
		if err != nil {
			return err
		}
		if most := tracked.mostEntries(); most != 40 {
			t.Errorf("40 tracked connections have %.0f entries", most)
		}
		closed, all, err := ended(bare.host)
		if err != nil || closed != 40 || all != 40 {
			t.Errorf("%d of %d entries are of closed connections (%v), want all of 40", closed, all, err)
		}
		page, err := s.ask(ctx, w.client, Asking{URL: w.url + webPage, Connections: 1, NewConnections: true, Requests: 2, For: 20 * time.Second, Timeout: 10 * time.Second})
		if err != nil {
			return err
		}
		if page.Answered != 2 {
			t.Errorf("%d pages answered, want 2: %v", page.Answered, page.Failed)
		}
		section := s.Section("course", "The course")
		section.Charts = overTime("course", 100, tracked, c, tracked)
		section.Add(figures.Figure{Case: "a", Subject: "b", Quantity: "c", Unit: "d", Samples: stats.Series{1}})
		s.Found("It was that.", "for one, "+fmt.Sprint(all))
		s.Honest("It is %s.", "not so")
		s.Goal(figures.AtMost("reached", "", 1, stats.Series{1}, nil))
		s.Goal(figures.AtMost("not reached", "", 1, stats.Series{2}, nil))
		return nil
	}}
	r, err := Run(t.Context(), played, Options{Binary: binary, Lab: lab, Short: true, Say: func(line string) { said = append(said, line) }})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range r.Sections {
		names = append(names, s.Name)
	}
	if have, want := strings.Join(names, " "), "incident policy-web course cause honest"; have != want {
		t.Errorf("sections %s, want %s", have, want)
	}
	if charts := r.Sections[2].Charts; len(charts) < 2 || len(charts[0].Lines) != 2 || len(charts[1].Lines) != 3 {
		t.Errorf("charts %+v", charts)
	}
	if len(r.Goals) != 2 || r.Reached() {
		t.Errorf("goals %+v", r.Goals)
	}
	if len(said) != 2 {
		t.Errorf("said %q, want the cause and its evidence", said)
	}
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", folder, err)
	}
}

// TestFailureKeepsWhatWasMeasured has a set-up step fail in the midst.
func TestFailureKeepsWhatWasMeasured(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Nftables)
	played := Story{Number: 9, Title: "a test", Run: func(_ context.Context, s *Stage) error {
		s.Section("course", "The course").Add(figures.Figure{Case: "a", Samples: stats.Series{1}})
		s.Net.Namespace("host").MustRun("false")
		t.Error("went on behind a step that failed")
		return nil
	}}
	r, err := Run(t.Context(), played, Options{})
	if err == nil || r == nil || len(r.Sections) != 2 || len(r.Sections[1].Figures) != 1 {
		t.Errorf("error %v, report %+v", err, r)
	}
}

func TestPageIsLikeText(t *testing.T) {
	s := &Stage{Options: Options{Seed: 1}}
	page := s.htmlPage()
	if !bytes.Equal(page, (&Stage{Options: Options{Seed: 1}}).htmlPage()) {
		t.Error("the same seed gives another page")
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(page); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if ratio := float64(len(page)) / float64(packed.Len()); len(page) < webPageSize || ratio < 2 || ratio > 6 {
		t.Errorf("%d bytes, compressed %.1f times", len(page), ratio)
	}
}

func TestLinesHandsOnWholeLines(t *testing.T) {
	var said []string
	l := &lines{say: func(line string) { said = append(said, line) }}
	for _, part := range []string{"on", "e\r\ntw", "o\nthree"} {
		if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
			t.Errorf("wrote %d of %d: %v", n, len(part), err)
		}
	}
	if have := strings.Join(said, "|"); have != "one|two" {
		t.Errorf("said %q", have)
	}
	for range 2 * keptLines {
		_, _ = l.Write([]byte("x\n"))
	}
	if len(l.last) != keptLines {
		t.Errorf("%d lines kept, want %d", len(l.last), keptLines)
	}
}

func TestLeftoversOfKilledStoriesGo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(os.TempDir(), fmt.Sprintf("%s%d-1", folderPrefix, dead.Process.Pid))
	kept := filepath.Join(os.TempDir(), fmt.Sprintf("%s%d-1", folderPrefix, os.Getpid()))
	for _, folder := range []string{gone, kept} {
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	kernels.RemoveLeftovers(folderPrefix)
	if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of a process that is gone stays: %v", err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("the folder of a process that lives is gone: %v", err)
	}
}

// TestLabNamesWhatIsMissing asks for the kernel lab on a machine without its programs.
func TestLabNamesWhatIsMissing(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("PATH", t.TempDir())
	bare := Story{Number: 9, Programs: []string{"/nowhere/postgres", "/nowhere/pgbench"}}
	_, err := RunInLab(t.Context(), bare, "6.12", Options{})
	if err == nil || !strings.Contains(err.Error(), "hint: apt-get install qemu-system-x86 busybox-static postgresql") {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(cache); len(left) > 0 {
		t.Errorf("%v was fetched", left)
	}
}

// TestNoLabHere: what only the kernel lab says of its machines is believed of no other,
// since a story sets there what it likes, and applies a policy to the machine.
func TestNoLabHere(t *testing.T) {
	if kernels.Inside() {
		t.Skip("this is the kernel lab")
	}
	s := Story{Number: 9, Title: "a test", Machine: true, Run: func(context.Context, *Stage) error {
		t.Error("it is played")
		return nil
	}}
	if r, err := Run(t.Context(), s, Options{InLab: true}); err == nil || r != nil {
		t.Errorf("report %v, error %v", r, err)
	}
}
