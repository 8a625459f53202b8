package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/engine/apply"
)

// ask sends a request to a handler over HTTP, and reads the answer.
func ask(t *testing.T, accept string, handle http.HandlerFunc) (status int, told []string, result string, err error) {
	t.Helper()
	s := httptest.NewServer(handle)
	defer s.Close()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	answer, err := s.Client().Do(r) //nolint:bodyclose // Await closes it
	if err != nil {
		t.Fatal(err)
	}
	raw, err := Await(answer, func(l Line) {
		text, _ := json.Marshal(l)
		told = append(told, string(text))
	})
	return answer.StatusCode, told, string(raw), err
}

// An answer is told line by line, or the result alone; a failure before the first line
// has a status of its own, and one that comes later is the last line.
func TestAnswer(t *testing.T) {
	refused := &Failure{Text: "no", Exit: 1, Kind: NotAllowed, Result: json.RawMessage(`{"done":1}`)}
	for name, c := range map[string]struct {
		handle func(*Answer)
		status int
		told   []string // by whoever reads lines
		result string
		err    error
	}{
		"result": {
			handle: func(a *Answer) {
				a.Note("a")
				a.Warn("b <c>")
				a.Shout("d")
				a.Progress(apply.Progress{Done: 1, Total: 2, Name: "e", Purpose: "fill"})
				a.End([]int{1}, nil)
				a.Note("behind the end")
			},
			status: 200, told: []string{`{"note":"a"}`, `{"warning":"b \u003cc\u003e"}`, `{"shout":"d"}`, `{"progress":{"done":1,"total":2,"name":"e","purpose":"fill"}}`}, result: "[1]",
		},
		"refused":    {handle: func(a *Answer) { a.End(nil, refused) }, status: 403, err: refused},
		"any error":  {handle: func(a *Answer) { a.End(1, errors.New("x")) }, status: 422, err: &Failure{Text: "x", Exit: 2}},
		"unwritable": {handle: func(a *Answer) { a.End(func() {}, nil) }, status: 422, err: &Failure{Text: "the result cannot be written: json: unsupported type: func()", Exit: 2}},
		"no end":     {handle: func(*Answer) {}, status: 200, err: ErrEnded},
	} {
		for _, accept := range []string{Lines, "application/json", ""} {
			status, told, result, err := ask(t, accept, func(w http.ResponseWriter, r *http.Request) { c.handle(NewAnswer(w, r)) })
			want := c.told
			if accept != Lines {
				want = nil
			}
			if status != c.status || !slices.Equal(told, want) || strings.TrimSpace(result) != c.result || !sameError(err, c.err) {
				t.Errorf("%s, %q: %d %q %q %v", name, accept, status, told, result, err)
			}
		}
	}
	_, told, _, err := ask(t, Lines, func(w http.ResponseWriter, r *http.Request) {
		a := NewAnswer(w, r)
		a.Note("a")
		a.End(nil, refused)
	})
	if len(told) != 1 || !sameError(err, refused) {
		t.Errorf("a late failure: %q %v", told, err)
	}
	if _, _, _, err = ask(t, Lines, func(w http.ResponseWriter, r *http.Request) { NewAnswer(w, r).Note("a") }); !errors.Is(err, ErrEnded) {
		t.Errorf("an answer without an end: %v", err)
	}
	if _, _, _, err = ask(t, Lines, http.NotFound); !sameError(err, &Failure{Text: "the agent answers 404 Not Found", Exit: 2}) {
		t.Errorf("what is not an answer: %v", err)
	}
}

// What a process writes, another one passes on.
func TestLines(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{{nil, `{"note":"a"}{"result":[1]}`}, {&Failure{Text: "no", Exit: 1}, `{"note":"a"}{"failure":{"error":"no","exit-status":1}}`}} {
		from, to := io.Pipe()
		go func() {
			a := NewLines(to)
			a.Note("a")
			a.End([]int{1}, c.err)
			_ = to.Close()
		}()
		var passed strings.Builder
		a := NewLines(&passed)
		result, err := ReadLines(from, a.Tell)
		a.End(result, err)
		if got := strings.ReplaceAll(passed.String(), "\n", ""); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func sameError(got, want error) bool {
	var g, w *Failure
	if errors.As(got, &g) && errors.As(want, &w) {
		a, _ := json.Marshal(g)
		b, _ := json.Marshal(w)
		return string(a) == string(b)
	}
	return errors.Is(got, want)
}

// A request is read strictly.
func TestRead(t *testing.T) {
	for body, want := range map[string]Kind{
		`{"what":["192.0.2.1"]}`:   "",
		`{"what":[],"whatever":1}`: BadRequest,
		`{"what":[]} {}`:           BadRequest,
		`{"what":`:                 BadRequest,
		``:                         BadRequest,
		`{"what":["` + strings.Repeat("x", 200) + `"]}`: TooLarge,
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		_, err := Read[UnbanRequest](httptest.NewRecorder(), r, 100)
		var f *Failure
		if errors.As(err, &f) != (want != "") || f != nil && f.Kind != want {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// A request says what it was set to; another level of the protocol is refused with the
// levels that there are.
func TestMeantBy(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/?fast=true", http.NoBody)
	in := Meant{State: "/srv/x", Wait: 90 * time.Second, Reason: "why & how: ü"}
	in.Set(r)
	if out, err := MeantBy(r); err != nil || out != in {
		t.Errorf("%+v %v", out, err)
	}
	if r.URL.Query().Get("fast") != "true" {
		t.Errorf("%s", r.URL)
	}
	r = httptest.NewRequest(http.MethodPost, "/", http.NoBody)
	if out, err := MeantBy(r); err != nil || out != (Meant{Wait: defaultWait}) {
		t.Errorf("%+v %v", out, err)
	}
	for header, want := range map[[2]string]Kind{
		{ProtocolHeader, "99"}: OtherProtocol, {ProtocolHeader, "x"}: BadRequest,
		{WaitHeader, "-1"}: BadRequest, {WaitHeader, "NaN"}: BadRequest, {WaitHeader, "1e9"}: BadRequest,
	} {
		r.Header = http.Header{header[0]: {header[1]}}
		_, err := MeantBy(r)
		var f *Failure
		if !errors.As(err, &f) || f.Kind != want || (want == OtherProtocol) != (len(f.Protocols) > 0) {
			t.Errorf("%v: %v", header, err)
		}
	}
	for since, fine := range map[string]bool{"2026-06-01T12:00:00Z": true, "2026-06-01T12:00:00.5%2B02:00": true, "": false, "2026-06-01": false, "x": false} {
		if _, err := MeantBy(httptest.NewRequest(http.MethodGet, "/?since="+since, http.NoBody)); (err == nil) != fine {
			t.Errorf("since=%s: %v", since, err)
		}
	}
}

// FuzzAwait: whatever an agent answers, reading it ends, with a result or an error.
func FuzzAwait(f *testing.F) {
	for _, text := range []string{`{"note":"a"}` + "\n" + `{"result":[1]}`, `{"failure":{"error":"x","exit-status":1}}`, `{"result":null}`, `{"failure":{}}`, `{"progress":{}}`, `{}`, ``, `[`} {
		f.Add(200, Lines, text)
		f.Add(200, "application/json", text)
		f.Add(403, "text/plain", text)
	}
	f.Fuzz(func(t *testing.T, status int, kind, text string) {
		r := &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(text))}
		result, err := Await(r, func(Line) {})
		if (result == nil) == (err == nil) {
			t.Errorf("%d %s %q: %q %v", status, kind, text, result, err)
		}
		if r := (*Failure)(nil); errors.As(err, &r) && r.Text == "" {
			t.Errorf("%d %s %q: a failure without a text", status, kind, text)
		}
	})
}
