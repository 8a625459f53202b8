package alert

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/agent/config"
	"sluice/internal/engine/apply"
)

var found = apply.Alert{
	Time: time.Date(2026, 11, 23, 1, 2, 3, 0, time.UTC), Event: Drift, Namespace: "customer7", Generation: 3,
	Text:     "input: tcp from 192.0.2.1",
	Findings: []apply.Finding{{Kind: apply.FoundPacket, Text: "tcp", Line: "web.yaml:12 allow ssh", By: "nft (process 7)"}, {Kind: apply.FoundChain, Text: "chain"}},
}

// enough is more than anything takes.
const enough = time.Minute

// running is a sender that runs, with what it could not send.
func running(t *testing.T, command []string, webhook string) (*Sender, chan error) {
	t.Helper()
	s := New(command, webhook)
	failed := make(chan error, 100)
	s.Print, s.Failed = func(text string) { t.Log(text) }, func(err error) { failed <- err }
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	return s, failed
}

func wantFailed(t *testing.T, failed <-chan error, text string) {
	t.Helper()
	select {
	case err := <-failed:
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %s", err, text)
		}
	case <-time.After(enough):
		t.Errorf("it does not fail with %q", text)
	}
}

// The command has fields in its environment and everything on its input.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	s, failed := running(t, []string{"/bin/sh", "-c", `cat >json; env >env; echo "$1" >arguments; mv env done`, "sh", "a $b;"}, "")
	t.Chdir(dir)
	s.Send(found)
	var env []byte
	for deadline := time.Now().Add(enough); env == nil && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		env, _ = os.ReadFile("done")
	}
	for _, want := range []string{
		"SLUICE_EVENT=drift\n", "SLUICE_NAMESPACE=customer7\n", "SLUICE_GENERATION=3\n", "SLUICE_KIND=packet\n",
		"SLUICE_LINE=web.yaml:12 allow ssh\n", "SLUICE_BY=nft (process 7)\n", "SLUICE_FINDINGS=2\n", "SLUICE_TEXT=input: tcp from 192.0.2.1\n",
	} {
		if !strings.Contains(string(env), want) {
			t.Errorf("no %q in %s", want, env)
		}
	}
	text, _ := os.ReadFile("json")
	var got apply.Alert
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(found, got); d != "" {
		t.Error(d)
	}
	if arguments, _ := os.ReadFile("arguments"); string(arguments) != "a $b;\n" {
		t.Errorf("%s", arguments)
	}
	if len(failed) > 0 {
		t.Error(<-failed)
	}
}

// One that fails says why; one that hangs is ended with all that it has started.
func TestCommandFails(t *testing.T) {
	s, failed := running(t, []string{"/bin/sh", "-c", "echo no such pager >&2; exit 3"}, "")
	s.Send(found)
	wantFailed(t, failed, "exit status 3: no such pager")
	s, failed = running(t, []string{"/nowhere/pager"}, "")
	s.Send(found)
	wantFailed(t, failed, "no such file")

	file := filepath.Join(t.TempDir(), "pid")
	s, failed = running(t, []string{"/bin/sh", "-c", `sleep 1000 & echo $! >` + file + `.new; mv ` + file + `.new ` + file + `; wait`}, "")
	s.most = 300 * time.Millisecond
	s.Send(found)
	wantFailed(t, failed, "ended after")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Skip("it was ended before it began: ", err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	for deadline := time.Now().Add(enough); ; time.Sleep(20 * time.Millisecond) {
		state, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || strings.Contains(string(state), ") Z ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("what it has started lives")
		}
	}
}

// What a webhook answers in words of its own, a terminal need not be fit for.
func TestWebhookWords(t *testing.T) {
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 500 \x1b[2Jall is well\r\nContent-Length: 0\r\n\r\n")
		_ = c.Close()
	}))
	t.Cleanup(there.Close)
	s, failed := running(t, nil, there.URL)
	s.Send(found)
	wantFailed(t, failed, "500 Internal Server Error")
}

func TestWebhook(t *testing.T) {
	asked := make(chan string, 10)
	status := http.StatusOK
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		asked <- r.Method + " " + r.Header.Get("Content-Type") + " " + string(text)
	}))
	t.Cleanup(there.Close)
	s, failed := running(t, nil, there.URL)
	for _, c := range []struct {
		status int
		failed string
	}{{200, ""}, {503, "503"}, {307, "307"}} {
		status = c.status
		s.Send(found)
		text := <-asked
		if !strings.HasPrefix(text, `POST application/json {"time":"2026-11-23T01:02:03Z","event":"drift"`) {
			t.Error(text)
		}
		if c.failed != "" {
			wantFailed(t, failed, c.failed)
		}
	}
	if len(asked)+len(failed) > 0 {
		t.Error("it is followed elsewhere, or fails")
	}
}

// Nobody waits for what hangs, and the newest alerts are the ones that are kept.
func TestQueue(t *testing.T) {
	s := New([]string{"/bin/true"}, "")
	var printed, failed int
	s.Print, s.Failed = func(string) { printed++ }, func(error) { failed++ }
	for i := range mostWaiting + 5 {
		a := found
		a.Generation = i
		s.Send(a)
	}
	if first := <-s.queue; failed != 5 || first.Generation != 5 {
		t.Errorf("%d are left out, and the first is %d", failed, first.Generation)
	}
	if _, err := os.Stat("/run/systemd/journal/socket"); err != nil && printed != mostWaiting+5 {
		t.Errorf("%d are printed", printed)
	}
}

// The reference of the agent's file has each event, field and kind of finding.
func TestReferenceHasAlerts(t *testing.T) {
	text := string(config.Reference())
	names := []string{Drift, Over, Restored, NotRestored, Stopped, Stale, Renewed, Refused, "SLUICE_SET"}
	for _, kind := range apply.FindingKinds {
		names = append(names, string(kind))
	}
	for field := range fields(found) {
		names = append(names, "SLUICE_"+field)
	}
	for _, name := range names {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("the reference has nothing of %s", name)
		}
	}
}
