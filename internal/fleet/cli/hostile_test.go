package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/lab/testnet"
)

// hostile are texts as JSON has them, and as a URL has them once they are escaped. The first
// is of what a name may have least, in one.
var hostile = []struct{ name, inJSON, raw string }{
	{"all", `\u001b]0;x\u0007\u001b[2J<script>alert(1)</script>` + "\u202e\u2066" + `\u0000\nforged row`, "\x1b]0;x\a\x1b[2J<script>alert(1)</script>\u202e\u2066\x00\nforged row"},
	{"title", `\u001b]0;x\u0007`, "\x1b]0;x\a"},
	{"clear", `\u001b[2J`, "\x1b[2J"},
	{"script", `<script>alert(1)</script>`, "<script>alert(1)</script>"},
	{"override", "a\u202eb", "a\u202eb"},
	{"isolate", "a\u2066b", "a\u2066b"},
	{"nul", `a\u0000b`, "a\x00b"},
	{"line", `a\nforged row`, "a\nforged row"},
	{"surrogate", `a\ud800b`, "a\xed\xa0\x80b"},
	{"bytes", "a\xff\x9bb", "a\xff\x9bb"},
}

const (
	marker = "HOSTILE"
	large  = 10 << 20
)

type object = map[string]any

// assault is the interface's document, and a controller to which all of it is said.
type assault struct {
	*testing.T
	document           object
	client             *http.Client
	made               int
	round              int64 // the roll-out of the bundle that is in force
	operations, fields int
	accepted           map[string]int // texts, by operation
	waited             []string       // requests that waited for approval
}

// schema follows references.
func (a *assault) schema(v any) object {
	s, _ := v.(object)
	for s["$ref"] != nil {
		var at any = a.document
		for _, key := range strings.Split(strings.TrimPrefix(fmt.Sprint(s["$ref"]), "#/"), "/") {
			at = at.(object)[key]
		}
		s, _ = at.(object)
	}
	if s == nil {
		a.Fatalf("%v is no schema", v)
	}
	return s
}

// sample is what a controller takes, with no more than is required.
func (a *assault) sample(name string, of any) any {
	s := a.schema(of)
	switch s["type"] {
	case "array":
		return []any{a.sample(name, s["items"])}
	case "object":
		out := object{}
		properties, _ := s["properties"].(object)
		required, _ := s["required"].([]any)
		for key, of := range properties {
			if slices.Contains(required, any(key)) || key == "for-seconds" {
				out[key] = a.sample(key, of)
			}
		}
		return out
	case "integer":
		if name == "rollout" {
			return a.round
		}
		return 1
	case "boolean":
		return false
	}
	a.made++
	said := map[string]string{
		"what": fmt.Sprintf("203.0.113.%d", 1+a.made%200), "addresses": fmt.Sprintf("198.51.100.%d", 1+a.made%200), "host": "web-1", "interface": "tap0", "guest": "guest-1",
		"secret": fmt.Sprintf("%08x%056x", a.made, 0), "sha256": fmt.Sprintf("%064x", a.made), "hashes": fmt.Sprintf("%064x", a.made),
		"expires": time.Now().Add(12 * time.Hour).UTC().Format(time.RFC3339), "role": "viewer", "command": "pause", "roots": "e30=", "targets": "e30=", "order": "e30=",
	}
	if text, has := said[name]; has {
		return text
	}
	return fmt.Sprintf("%s%d", name, a.made)
}

// marked are samples that have the marker as one of their texts, or as a key.
func (a *assault) marked(name string, of any) (out []any) {
	s := a.schema(of)
	switch s["type"] {
	case "string":
		if name == "id" { // which is taken once
			return []any{marker + fmt.Sprint(a.round)}
		}
		return []any{marker}
	case "array":
		for _, v := range a.marked(name, s["items"]) {
			out = append(out, []any{v})
		}
	case "object":
		properties, _ := s["properties"].(object)
		for _, key := range slices.Sorted(maps.Keys(properties)) {
			for _, v := range a.marked(key, properties[key]) {
				whole, _ := a.sample(name, of).(object)
				whole[key] = v
				out = append(out, whole)
			}
		}
		if more, has := s["additionalProperties"].(object); has {
			for _, v := range a.marked(name, more) {
				out = append(out, object{"a": v})
			}
			out = append(out, object{marker: "a"})
		}
	}
	return out
}

// ask says something to an operation, and fails where what it answers is not what a program
// or a screen can take. It reads of what is said no more than the bound.
func (a *assault) ask(method, path string, body []byte) (status int, answer []byte) {
	a.Helper()
	said := &readCount{Reader: bytes.NewReader(body)}
	r, err := http.NewRequestWithContext(a.Context(), method, "http://sluice-controller"+path, said)
	ok(a.T, err)
	r.Header.Set("Content-Type", "application/json")
	is, err := a.client.Do(r)
	ok(a.T, err)
	defer is.Body.Close()
	answer, err = io.ReadAll(is.Body)
	ok(a.T, err)
	what := fmt.Sprintf("%s %.200s %.200q", method, path, body)
	offline := is.StatusCode == http.StatusServiceUnavailable && strings.Contains(path, "/agent/") // hosts that enrolled, and have no agent
	if is.StatusCode >= 500 && !offline {
		a.Errorf("%s: %s %s", what, is.Status, answer)
	}
	if n := said.n.Load(); n > api.MostRequest+2<<20 { // what a socket and both ends hold
		a.Errorf("%s: %d bytes are taken", what, n)
	}
	text := strings.ReplaceAll(string(answer), "\n", "")
	if path == "/metrics" {
		text = strings.ReplaceAll(string(answer), "\n", " ")
	} else if is.StatusCode != http.StatusNoContent && (is.Header.Get("Content-Type") != "application/json" || !json.Valid(answer)) {
		a.Errorf("%s: %s is no JSON: %.200q", what, is.Header.Get("Content-Type"), answer)
	}
	if !utf8.ValidString(text) || strings.Contains(text, "<script") || strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 }) {
		a.Errorf("%s: %q", what, answer)
	}
	return is.StatusCode, answer
}

// readCount counts what is read of it.
type readCount struct {
	io.Reader

	n atomic.Int64
}

func (c *readCount) Read(into []byte) (int, error) {
	n, err := c.Reader.Read(into)
	c.n.Add(int64(n))
	return n, err
}

// say says all that is hostile to an operation.
func (a *assault) say(method, path string, o object) {
	id, _ := o["operationId"].(string)
	parameters, _ := o["parameters"].([]any)
	at := func(target, text string) string {
		out, query := path, url.Values{}
		for _, v := range parameters {
			p := a.schema(v)
			name, _ := p["name"].(string)
			value := text
			switch {
			case name == target:
			case id == "revoke":
				value = fmt.Sprint("web-", 1+a.round)
			default:
				value = fmt.Sprint(a.sample(name, p["schema"]))
			}
			switch {
			case p["in"] == "path":
				out = strings.ReplaceAll(out, "{"+name+"}", url.PathEscape(value))
			case name == target:
				query.Set(name, value)
			}
		}
		return out + "?" + query.Encode()
	}
	requestBody, _ := o["requestBody"].(object)
	content, _ := requestBody["content"].(object)
	media, isJSON := content["application/json"].(object)
	whole := func() (text []byte) {
		if isJSON {
			text, _ = json.Marshal(a.sample("", media["schema"]))
		}
		return text
	}
	took := func(status int, answer []byte) {
		if status < 300 {
			a.accepted[id]++
		}
		if status == http.StatusAccepted { // so that others can wait
			var is api.Request
			ok(a.T, json.Unmarshal(answer, &is))
			a.waited = append(a.waited, is.Id)
			decide, why := "/refuse", `{"why": "`+hostile[a.made%len(hostile)].inJSON+`"}`
			if a.made%2 == 0 {
				decide, why = "/approve", strings.Replace(why, "{", `{"alone": true, `, 1)
			}
			if status, answer := a.ask("POST", "/api/v1/requests/"+is.Id+decide, []byte(why)); status != http.StatusOK {
				a.Errorf("%s: %d %s", decide, status, answer)
			}
		}
	}
	for _, v := range parameters {
		p := a.schema(v)
		if p["in"] == "header" {
			continue
		}
		a.fields++
		for _, h := range hostile {
			took(a.ask(method, at(fmt.Sprint(p["name"]), h.raw), whole()))
		}
	}
	if !isJSON {
		return
	}
	a.operations++
	if status, answer := a.ask(method, at("", ""), append(bytes.Repeat([]byte(" "), large), whole()...)); status != http.StatusBadRequest && status != http.StatusRequestEntityTooLarge && !strings.Contains(path, "/agent/") {
		a.Errorf("%s takes %d bytes: %d %.200s", id, large, status, answer)
	}
	for _, h := range hostile {
		for _, body := range a.marked("", media["schema"]) { // anew, so that each has its own names
			a.fields++
			text, err := json.Marshal(body)
			ok(a.T, err)
			took(a.ask(method, at("", ""), bytes.ReplaceAll(text, []byte(marker), []byte(h.inJSON))))
		}
	}
}

// TestHostileTexts: no name, label, reason or body that somebody sends makes the controller
// fail, or steers the terminal of who lists it later.
func TestHostileTexts(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { hostileTexts(t) })
	t.Run("postgres", func(t *testing.T) { // which has no text with a NUL
		if testing.Short() {
			t.Skip("it walks all of it once more")
		}
		if err := testnet.PostgresHere(); err != nil {
			testnet.Lacks(t, "PostgreSQL", err)
		}
		var server testnet.Postgres
		t.Cleanup(server.Stop)
		ok(t, server.Start())
		hostileTexts(t, "--database", server.Address("postgres"))
	})
}

func hostileTexts(t *testing.T, database ...string) {
	t.Helper()
	f := found(t)
	defer f.serve(t, database...)()
	at := func(args ...string) []string { return append(args, "--dir", f.dir) }
	token, _ := run(t, 0, at("token", "create", "--repository", f.repository, "--uses", "3")...)
	for i := range 3 {
		enrol(t, fmt.Sprint("web-", 1+i), token)
	}
	text, err := os.ReadFile("../api/openapi.yaml")
	ok(t, err)
	a := &assault{T: t}
	ok(t, yaml.Unmarshal(text, &a.document))
	a.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", api.Socket(f.dir))
	}}}
	paths, _ := a.document["paths"].(object)
	var gets []string
	approved := map[string]bool{}
	walk := func() {
		for _, path := range slices.Sorted(maps.Keys(paths)) {
			methods, _ := paths[path].(object)
			for _, method := range slices.Sorted(maps.Keys(methods)) {
				o, _ := methods[method].(object)
				if what, is := o["x-sluice-approve"].(string); is {
					approved[what] = true
				}
				if path == "/api/v1/events" || path == "/api/v1/log" { // which do not end
					continue
				}
				if method == "get" && !strings.Contains(path, "{") {
					gets = append(gets, path)
				}
				a.say(strings.ToUpper(method), path, o)
			}
		}
	}
	for _, approve := range []bool{false, true} {
		of := "version: 1\nfleet: example.net\nparts: [parts/*.yaml]\nbans: {for: 1d}\nexceptions: {who: [203.0.113.0/24], longest: 8h}\n"
		if approve {
			of += "approve: [" + strings.Join(slices.Sorted(maps.Keys(approved)), ", ") + "]\n"
		}
		f.sign(t, map[string]string{"fleet.yaml": of, "parts/10-base.yaml": "version: 1\ninput: {default: drop}\n"})
		run(t, 0, at("publish", "--repository", f.repository)...)
		a.round++
		a.operations, a.fields, a.accepted = 0, 0, map[string]int{}
		walk()
		for _, h := range hostile {
			for _, line := range [][]string{
				{"requests"},
				{"approve"},
				{"refuse"},
				{"bans"},
				{"allows"},
				{"guest", "show"},
				{"guest", "remove"},
				{"token", "withdraw"},
				{"access", "withdraw"},
				{"revoke"},
				{"rollout", "show"},
				{"lists", "undo"},
			} {
				if !approve {
					a.list(2, at(append(line, h.raw)...))
				}
			}
		}
		if want := strings.Count(string(text), "requestBody:") - strings.Count(string(text), "octet-stream:"); a.operations != want || a.fields < 10*len(hostile) {
			t.Errorf("%d operations of %d, %d texts", a.operations, want, a.fields)
		}
		for _, o := range []string{"ban", "command", "createLink", "createToken", "revoke", "unban"} {
			if a.accepted[o] == 0 {
				t.Errorf("%s accepts none: %v", o, a.accepted)
			}
		}
	}
	for _, path := range gets {
		if status, answer := a.ask("GET", path, nil); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	for _, line := range [][]string{
		{"hosts"},
		{"bans"},
		{"allows"},
		{"guest", "list"},
		{"requests"},
		{"requests", "--all"},
		{"audit", "list", "--last", "0"},
		{"access", "list"},
		{"token", "list"},
		{"rollout", "show"},
		{"rollout", "show", "--all"},
		{"lists"},
		{"notices", "--all"},
	} {
		for _, more := range [][]string{nil, {"--json"}} {
			a.list(1, at(append(line, more...)...))
		}
	}
	if len(a.waited) == 0 {
		t.Error("nothing waited for approval")
	}
	for _, id := range a.waited {
		a.list(0, at("requests", id))
	}
}

// list runs a command whose status is want, or 0, and looks at what it prints.
func (a *assault) list(want int, line []string) {
	a.Helper()
	var o, e bytes.Buffer
	if status := command.Run(Root(), line, nil, &o, &e); status != want && status != 0 || o.Len()+e.Len() == 0 {
		a.Errorf("%q: %d %s%s", line, status, &o, &e)
	}
	for row := range strings.Lines(o.String() + e.String()) {
		if strings.HasPrefix(strings.TrimSpace(row), "forged") || !utf8.ValidString(row) || strings.ContainsFunc(strings.TrimSuffix(row, "\n"), func(r rune) bool {
			return r < 0x20 || r == 0x7f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
		}) {
			a.Errorf("%q: %.400q", line, row)
		}
	}
}
