package wire

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
)

const hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

// whole is a value of each schema, as small as it may be.
var whole = map[string]struct {
	is   Checker
	text string
}{
	"Hello":          {&Hello{}, `{"version": "1.0", "instance": "a"}`},
	"Report":         {&Report{}, `{"state": "proved"}`},
	"Probe":          {&Report{}, `{"state": "proved", "probes": [{"probe": "controller", "ok": true}]}`},
	"Facts":          {&Facts{}, `{"facts": {}}`},
	"Trust":          {&Trust{}, `{}`},
	"Roots":          {&Roots{}, `{"roots": []}`},
	"Desired":        {&Desired{}, `{}`},
	"Order":          {&Desired{}, `{"order": {}}`},
	"Prefetch":       {&Desired{}, `{"prefetch": {"bundle": 1, "rollout": 1}}`},
	"Document":       {&Desired{}, `{"members": {"sha256": "` + hash + `", "size": 0, "content": "` + hash + `"}}`},
	"Living":         {&Hello{}, `{"version": "1.0", "instance": "a", "living": {"incarnation": 1, "seq": 2}}`},
	"Live":           {&Live{}, `{}`},
	"LiveApplied":    {&LiveApplied{}, `{"living": {"incarnation": 1, "seq": 2}}`},
	"LimitBans":      {&LimitBans{}, `{"what": ["203.0.113.7/32", "2001:db8::/64"]}`},
	"NotLive":        {&LiveApplied{}, `{"living": {}, "refused": [{"id": "a", "why": "b"}]}`},
	"LiveList":       {&Desired{}, `{"lists": [{"name": "a", "envelope": "YQ=="}]}`},
	"ListReport":     {&Report{}, `{"state": "proved", "lists": [{"name": "a"}]}`},
	"Ask":            {&Ask{}, `{"what": "facts"}`},
	"Question":       {&Question{}, `{"id": 1, "method": "GET", "path": "/v1"}`},
	"Restore":        {&Restore{}, `{"by": "user:erika"}`},
	"Pace":           {&Pace{}, `{"id": 1}`},
	"Piece":          {&Piece{}, `{"id": 1}`},
	"Findings":       {&Findings{}, `{}`},
	"Finding":        {&Findings{}, `{"findings": [{"check": "a", "severity": "warning", "text": "b"}]}`},
	"Sample":         {&Sample{}, `{"seconds": 60}`},
	"SampledCountry": {&Sample{}, `{"seconds": 60, "countries": [{"country": "DE", "packets": 1}]}`},
	"SampledLine":    {&Sample{}, `{"seconds": 60, "lines": [{"file": "a", "line": 1, "verdict": "drop", "packets": 1}]}`},
	"Drain":          {&Drain{}, `{}`},
	"Enrol":          {&Enrol{}, `{"secret": "s", "host": "web-1", "request": "pem"}`},
	"Enrolled":       {&Enrolled{}, `{"fleet": "example.net", "host": "web-1", "certificate": "pem"}`},
	"Renew":          {&Renew{}, `{"request": "pem"}`},
	"Renewed":        {&Renewed{}, `{"certificate": "pem"}`},
	"Failure":        {&Failure{}, `{"error": "no"}`},
}

// inside is the part of whole that a schema describes.
func inside(name string, all map[string]any) map[string]any {
	switch name {
	case "Probe":
		return all["probes"].([]any)[0].(map[string]any)
	case "LiveList", "ListReport":
		return all["lists"].([]any)[0].(map[string]any)
	case "Finding":
		return all["findings"].([]any)[0].(map[string]any)
	case "SampledCountry":
		return all["countries"].([]any)[0].(map[string]any)
	case "SampledLine":
		return all["lines"].([]any)[0].(map[string]any)
	case "Order":
		return all["order"].(map[string]any)
	case "Prefetch":
		return all["prefetch"].(map[string]any)
	case "Living":
		return all["living"].(map[string]any)
	case "NotLive":
		return all["refused"].([]any)[0].(map[string]any)
	case "Document":
		return all["members"].(map[string]any)
	}
	return all
}

// TestBoundsOfTheDocument has each bound of openapi.yaml passed by one, and refused.
func TestBoundsOfTheDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas map[string]map[string]any
		}
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	schemas := doc.Components.Schemas
	resolved := func(s map[string]any) map[string]any {
		if ref, is := s["$ref"].(string); is {
			return schemas[strings.TrimPrefix(ref, "#/components/schemas/")]
		}
		return s
	}
	bounds := 0
	for name, w := range whole {
		try := func(why string, change func(map[string]any)) error {
			t.Helper()
			var all map[string]any
			if err := json.Unmarshal([]byte(w.text), &all); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			change(inside(name, all))
			changed, err := json.Marshal(all)
			if err != nil {
				t.Fatal(err)
			}
			fresh := fresh(w.is)
			err = Read(changed, fresh)
			if why == "" && err != nil {
				t.Errorf("%s: %s: %v", name, changed, err)
			}
			if why != "" && err == nil {
				t.Errorf("%s: %s is taken", name, why)
			}
			return err
		}
		_ = try("", func(map[string]any) {})
		for _, required := range texts(schemas[name]["required"]) {
			if required == "ok" || required == "size" || required == "living" || name == "Roots" {
				continue // none is a value
			}
			_ = try("without "+required, func(m map[string]any) { delete(m, required) })
		}
		for field, s := range schemas[name]["properties"].(map[string]any) {
			s := resolved(s.(map[string]any))
			if n, has := s["maxLength"].(int); has {
				long, fits := strings.Repeat("a", n+1), strings.Repeat("a", n)
				if s["format"] == "byte" {
					long, fits = base64.StdEncoding.EncodeToString([]byte(long)), base64.StdEncoding.EncodeToString([]byte(fits))
				}
				_ = try(fmt.Sprintf("%s of %d bytes", field, n+1), func(m map[string]any) { m[field] = long })
				_ = try("", func(m map[string]any) { m[field] = fits })
				bounds++
			}
			if n, has := s["maxItems"].(int); has {
				item := resolved(s["items"].(map[string]any))
				var one any
				switch {
				case item["x-go-type"] == "netip.Addr":
					one = "203.0.113.5"
				case item["x-go-type"] == "netip.Prefix":
					one = "203.0.113.0/24"
				case item["format"] == "byte":
					one = "YQ=="
				case item["type"] == "string":
					one = "a"
				case item["type"] == "integer":
					one = 1
				case field == "refused":
					one = map[string]any{"id": "a", "why": "b"}
				default:
					one = map[string]any{"probe": "controller", "ok": true, "name": "a", "envelope": "YQ=="}
				}
				_ = try(fmt.Sprintf("%d %s", n+1, field), func(m map[string]any) { m[field] = many(one, n+1) })
				_ = try("", func(m map[string]any) { m[field] = many(one, n) })
				bounds++
			}
			if n, has := s["maxProperties"].(int); has {
				of := func(n int) map[string]string {
					m := map[string]string{}
					for i := range n {
						m[fmt.Sprint("k", i)] = "v"
					}
					return m
				}
				_ = try(fmt.Sprintf("%d %s", n+1, field), func(m map[string]any) { m[field] = of(n + 1) })
				_ = try("", func(m map[string]any) { m[field] = of(n) })
				bounds++
			}
			if n, has := s["minimum"].(int); has {
				_ = try(fmt.Sprintf("%s of %d", field, n-1), func(m map[string]any) { m[field] = n - 1 })
				bounds++
			}
			if n, has := s["maximum"].(int); has {
				_ = try(fmt.Sprintf("%s of %d", field, n+1), func(m map[string]any) { m[field] = n + 1 })
				_ = try("", func(m map[string]any) { m[field] = n })
				bounds++
			}
			if s["enum"] != nil && name != "Failure" { // kinds may be newer than this program
				_ = try(field+" of another word", func(m map[string]any) { m[field] = "other" })
				bounds++
			}
		}
	}
	if bounds < 40 {
		t.Errorf("only %d bounds were found in openapi.yaml", bounds)
	}
	for name, s := range schemas {
		if _, has := whole[name]; !has && s["type"] == "object" && name != "Message" && name != "Labels" {
			t.Errorf("%s has no row", name)
		}
	}
}

func texts(v any) (ts []string) {
	vs, _ := v.([]any)
	for _, v := range vs {
		ts = append(ts, v.(string))
	}
	return ts
}

func many(one any, n int) []any {
	s := make([]any, n)
	for i := range s {
		s[i] = one
	}
	return s
}

func fresh(c Checker) Checker {
	switch c.(type) {
	case *Hello:
		return &Hello{}
	case *Report:
		return &Report{}
	case *Facts:
		return &Facts{}
	case *Trust:
		return &Trust{}
	case *Roots:
		return &Roots{}
	case *Desired:
		return &Desired{}
	case *Live:
		return &Live{}
	case *LiveApplied:
		return &LiveApplied{}
	case *LimitBans:
		return &LimitBans{}
	case *Ask:
		return &Ask{}
	case *Question:
		return &Question{}
	case *Restore:
		return &Restore{}
	case *Pace:
		return &Pace{}
	case *Piece:
		return &Piece{}
	case *Findings:
		return &Findings{}
	case *Sample:
		return &Sample{}
	case *Drain:
		return &Drain{}
	case *Enrol:
		return &Enrol{}
	case *Enrolled:
		return &Enrolled{}
	case *Renew:
		return &Renew{}
	case *Renewed:
		return &Renewed{}
	}
	return &Failure{}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "Web-1", "-web", "web-", "web..1", ".web", "web_1", "web/1", "wéb", "web 1", strings.Repeat("a", 254)} {
		if CheckHost(id) == nil {
			t.Errorf("%q is the name of a host", id)
		}
	}
	for _, id := range []string{"a", "web-1", "web-1.example.net", "10"} {
		if err := CheckHost(id); err != nil {
			t.Error(err)
		}
	}
	for _, ls := range []Labels{{"": "v"}, {"a b": "v"}, {"role": "a b"}, {"role": "=web"}, {strings.Repeat("k", 254): "v"}, {"role\n": "v"}, {"role": "web\n"}} {
		if ls.Check() == nil {
			t.Errorf("%q are labels", ls)
		}
	}
	if err := (Labels{"role": "web", "gpu": "", "example.net/rack": "a_7.b"}).Check(); err != nil {
		t.Error(err)
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	rising := []Order{{}, {0, 1}, {0, 9}, {1, 0}, {1, 2}, {2, 1}}
	for i, o := range rising {
		for j, p := range rising {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := o.Compare(p); got != want {
				t.Errorf("%v against %v is %d", o, p, got)
			}
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	for _, m := range []*Message{{}, {Ask: &Ask{What: AskedFacts}, Drain: &Drain{}}, {Report: &Report{State: "other"}}} {
		if text, err := Encode(m); err == nil {
			t.Errorf("%s is a message", text)
		}
	}
}

// FuzzDecode: whatever is taken can be sent again, and is the same.
func FuzzDecode(f *testing.F) {
	for _, key := range []string{"Hello", "Report", "Facts", "Trust", "Desired", "Live", "Ask", "Question", "Pace", "Restore", "Sample", "Findings", "Drain"} {
		f.Add([]byte(`{"` + strings.ToLower(key) + `": ` + whole[key].text + `}`))
	}
	f.Add([]byte(`{"refused": {"error": "no", "kind": "newer"}}`))
	f.Add([]byte(`{"limit-bans": ` + whole["LimitBans"].text + `}`))
	f.Add([]byte(`{"answer": {"id": 1, "status": 200, "body": "YQ=="}}`))
	f.Add([]byte(`{"live-applied": ` + whole["NotLive"].text + `}`))
	f.Add([]byte(`{"newer": {}}`))
	f.Add([]byte(`{"ask": {"what": "facts"}} {}`))
	f.Add([]byte(`{"report": {"state": "proved", "proved": "2026-01-01T00:00:00+24:00"}}`))
	f.Add([]byte(strings.Repeat("[", 20000)))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Decode(text)
		if err != nil || m.kinds() == 0 {
			return
		}
		again, err := Encode(m)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		n, err := Decode(again)
		if err != nil {
			t.Fatalf("%s became %s: %v", text, again, err)
		}
		third, err := Encode(n)
		if err != nil || string(again) != string(third) {
			t.Fatalf("%s became %s (%v): %s", again, third, err, cmp.Diff(m, n))
		}
	})
}

// FuzzRequest: requests are read or refused, and nothing else.
func FuzzRequest(f *testing.F) {
	names := []string{"Enrol", "Enrolled", "Renew", "Renewed", "Roots", "Live", "Failure"}
	for i, name := range names {
		f.Add(uint8(i), []byte(whole[name].text))
	}
	f.Fuzz(func(t *testing.T, which uint8, text []byte) {
		v := fresh(whole[names[int(which)%len(names)]].is)
		if Read(text, v) == nil && v.Check() != nil {
			t.Fatalf("%s was taken", text)
		}
	})
}

func FuzzUnpatch(f *testing.F) {
	patch, err := Patch([]byte("input: drop"), []byte("input: drop all"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(patch, []byte("input: drop"))
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0xff, 0xff, 0xff, 0xff}, []byte("a"))
	f.Fuzz(func(t *testing.T, patch, from []byte) {
		if out, err := Unpatch(patch, from, 4096); err == nil && len(out) > 4096 {
			t.Fatalf("%d bytes", len(out))
		}
	})
}

// TestLimitBansAreWritten: of one prefix there is one text, or one host could count for two.
func TestLimitBansAreWritten(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"203.0.113.7/24", "::ffff:203.0.113.7/128", "2001:db8::1/64", "203.0.113.7", ""} {
		if err := Read([]byte(`{"limit-bans": {"what": ["`+text+`"]}}`), &Message{}); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
