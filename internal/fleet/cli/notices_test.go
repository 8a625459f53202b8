package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
)

// TestNotices: the file is checked, a receiver that takes nothing is named, and what is wrong is
// listed with who has heard it.
func TestNotices(t *testing.T) {
	f := found(t)
	out, _ := run(t, 0, "notices", "check", "--dir", f.dir)
	has(t, out, "journal  journal  everything")
	file := filepath.Join(f.dir, "notices.yaml")
	write(t, file, "version: 1\nreceivers:\n  ops: {mail: {server: mail.example.net, from: a@example.net, to: ops}}\n")
	_, errOut := run(t, 2, "notices", "check", "--dir", f.dir)
	has(t, errOut, file+`:3:67: "ops" is not a mail address`, "hint: write NAME@HOST")
	end := f.serve(t) // it starts anyway, and the journal hears of what is wrong
	out, errOut = run(t, 1, "notices", "--dir", f.dir)
	has(t, errOut, file+`:3:67: "…" is not a mail address`, "hint: write NAME@HOST")
	has(t, out, "journal  fine  journal")
	end()

	takes := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer takes.Close()
	write(t, file, fmt.Sprintf("version: 1\nreceivers:\n  fine: {webhook: {url: '%s/secret'}}\n", takes.URL))
	end = f.serve(t)
	out, _ = run(t, 0, "notices", "test", "--dir", f.dir)
	has(t, out, "fine  took it  webhook at "+takes.Listener.Addr().String()+"  200 OK\n")
	out, _ = run(t, 0, "notices", "--dir", f.dir)
	has(t, out, "no notice is open", "fine  fine  webhook at", "nothing sent yet")
	end()

	write(t, file, fmt.Sprintf("version: 1\nreceivers:\n  fine: {webhook: {url: '%s/secret'}}\n  gone: {webhook: {url: 'http://127.0.0.1:1/secret'}}\n", takes.URL))
	out, _ = run(t, 0, "notices", "check", "--dir", f.dir, "--json")
	var checked struct {
		File      string
		Receivers []struct{ Name, How string }
	}
	ok(t, json.Unmarshal([]byte(out), &checked))
	if checked.File != file || len(checked.Receivers) != 2 || checked.Receivers[1].How != "webhook at 127.0.0.1:1" {
		t.Error(out)
	}
	defer f.serve(t)()
	var tested api.TestedNotices
	out, _ = run(t, 1, "notices", "test", "--dir", f.dir, "--json")
	ok(t, json.Unmarshal([]byte(out), &tested))
	if r := tested.Receivers; len(r) != 2 || r[0].Failure != "" || r[0].Said != "200 OK" || !strings.Contains(r[1].Failure, "connection refused") {
		t.Error(out)
	}
	_, errOut = run(t, 2, "notices", "test", "--dir", f.dir)
	has(t, errOut, "a test was sent just now")
	text, err := os.ReadFile(file)
	ok(t, err)
	write(t, file, string(text)+"remind: never\n")
	_, errOut = run(t, 0, "notices", "--dir", f.dir)
	has(t, errOut, "warning: notices.yaml has changed since the controller read it")

	s, err := store.Open(t.Context(), "sqlite:"+filepath.Join(f.dir, "fleet.db"))
	ok(t, err)
	defer s.Close()
	ok(t, s.ChangeNotices(t.Context(), []store.Notice{{Kind: "halted", Subject: "7", Text: "roll-out 7 is halted\nfor now", Since: time.Now().Add(-time.Hour)}}, nil))
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(out, "sent to fine (begins, ") || !strings.Contains(out, "gone: dial tcp") {
		if time.Now().After(deadline) {
			t.Fatal(out)
		}
		out, _ = run(t, 1, "notices", "--dir", f.dir)
	}
	has(t, out, `roll-out 7 is halted\u000afor now`, "since 1h", "fine  fine   webhook at", "1 message sent, the last", "gone  fails  webhook at 127.0.0.1:1", "connection refused; since", "1 notice waiting, tried again in")
	open, err := s.Notices(t.Context(), false)
	ok(t, err)
	open[0].Gone, open[0].Ended = time.Now(), time.Now()
	ok(t, s.ChangeNotices(t.Context(), nil, open))
	out, _ = run(t, 1, "notices", "--dir", f.dir)
	has(t, out, "no notice is open")
	out, _ = run(t, 1, "notices", "--all", "--dir", f.dir)
	has(t, out, "roll-out 7 is halted", "ended ")
}
