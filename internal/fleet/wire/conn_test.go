package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/klauspost/compress/zstd"

	"sluice/internal/base/testseed"
)

// serve is a controller of those levels in TLS, whose streams do what is given.
func serve(t *testing.T, levels []int, does func(*Conn)) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := accept(w, r, levels)
		if err != nil {
			return
		}
		defer c.Cut()
		does(c)
	}))
	t.Cleanup(s.Close)
	return s
}

func echo(c *Conn) {
	for {
		m, err := c.Receive(context.Background())
		if err != nil {
			return
		}
		_ = c.Send(context.Background(), &Message{Refused: &Failure{Text: fmt.Sprintf("%s at level %d", m.Report.State, c.Level())}})
	}
}

// TestOneLevelBehind: whichever side is older by one level, both speak the older one's.
func TestOneLevelBehind(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		agent, controller []int
		level             int
	}{
		{[]int{1}, []int{1}, 1},
		{[]int{1}, []int{2, 1}, 1},
		{[]int{2, 1}, []int{1}, 1},
		{[]int{2, 1}, []int{3, 2}, 2},
		{[]int{1}, []int{3, 2}, 0},
		{[]int{3, 2}, []int{1}, 0},
	} {
		s := serve(t, test.controller, echo)
		c, err := dial(t.Context(), s.Client(), s.URL, test.agent)
		if test.level == 0 {
			var f *Failure
			if !errors.As(err, &f) || f.Kind != KindProtocol || !strings.Contains(f.Text, "upgrade the older of the two") {
				t.Errorf("%v: %v", test, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%v: %v", test, err)
		}
		if c.Level() != test.level {
			t.Errorf("%v: the agent speaks %d", test, c.Level())
		}
		if err := c.Send(t.Context(), &Message{Report: &Report{State: StateProved}}); err != nil {
			t.Fatal(err)
		}
		m, err := c.Receive(t.Context())
		if want := fmt.Sprintf("proved at level %d", test.level); err != nil || m.Refused.Text != want {
			t.Errorf("%v: %v, %v", test, m, err)
		}
		c.Cut()
	}
}

// TestReceive: what is not known is skipped, and what is wrong ends the stream.
func TestReceive(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, text string
		binary     bool
		want       string // of the error; "": taken
	}{
		{name: "a newer field", text: `{"report": {"state": "proved", "newer": [1]}}`},
		{name: "nothing known", text: `{}`, want: "nothing of it is known"},
		{name: "for the other side", text: `{"drain": {}}`, want: "for the other side"},
		{name: "two in one", text: `{"report": {"state": "proved"}, "facts": {"facts": {}}}`, want: "exactly one content"},
		{name: "no JSON", text: `{"report"`, want: "unexpected EOF"},
		{name: "two behind each other", text: `{"report": {"state": "proved"}}{}`, want: "after top-level value"},
		{name: "no UTF-8", text: "{\"report\": {\"state\": \"\xff\"}}", want: "UTF-8", binary: true},
		{name: "binary", text: `{"report": {"state": "proved"}}`, binary: true, want: "not a text"},
		{name: "too large", text: `{"facts": {"facts": {"a": "` + strings.Repeat("a", MostFromAgent) + `"}}}`, want: "limit"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := make(chan error, 1)
			s := serve(t, Levels, func(c *Conn) {
				m, err := c.Receive(context.Background())
				if err == nil && (m.Report == nil || m.Report.State != StateProved) {
					err = fmt.Errorf("it became %v", m)
				}
				got <- err
			})
			c, err := Dial(t.Context(), s.Client(), s.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Cut()
			go func() { _, _ = c.Receive(context.Background()) }() // which agrees to the end
			if err := c.SendEncoded(t.Context(), []byte(`{"newer": {"what": 1}}`)); err != nil {
				t.Fatal(err)
			}
			kind := websocket.MessageText
			if test.binary {
				kind = websocket.MessageBinary
			}
			for range mostUnknown {
				_ = c.ws.Write(t.Context(), kind, []byte(test.text)) // the first one may end the stream
			}
			switch err := <-got; {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.name == "no UTF-8" && err != nil:
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("it ends with %v, and not with %s", err, test.want)
			}
		})
	}
}

func TestClient(t *testing.T) {
	t.Parallel()
	old := bytes.Repeat([]byte("198.51.100.0/24\n"), 100)
	blob := append(bytes.Clone(old), "203.0.113.0/24\n"...)
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+PathEnrol, func(w http.ResponseWriter, r *http.Request) {
		e := &Enrol{}
		if err := json.NewDecoder(r.Body).Decode(e); err != nil || e.Host != "web-1" {
			Fail(w, &Failure{Text: "no", Kind: KindBadRequest})
			return
		}
		Fail(w, &Failure{Text: "somebody has to approve web-1", Kind: KindPending})
	})
	mux.HandleFunc("GET "+PathDesired, func(w http.ResponseWriter, r *http.Request) {
		Answer(w, http.StatusOK, &Desired{Order: Order{1, 7}, Bundle: 3, Members: &Document{Sha256: hash, Size: 4, Content: hash}})
	})
	mux.HandleFunc("GET "+PathTrust, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(make([]byte, MostFromController+1)) })
	mux.HandleFunc("GET "+PathRoot, func(w http.ResponseWriter, r *http.Request) { http.Error(w, "bad gateway", http.StatusBadGateway) })
	mux.HandleFunc("GET "+PathBlobs+"{hash}", func(w http.ResponseWriter, r *http.Request) {
		if from := r.URL.Query().Get("from"); from == Hash(old) {
			patch, err := Patch(old, blob)
			if err != nil {
				t.Error(err)
			}
			w.Header().Set("Content-Type", PatchType)
			_, _ = w.Write(patch)
			return
		}
		_, _ = w.Write(blob) // whatever was asked for
	})
	s := httptest.NewTLSServer(mux)
	defer s.Close()
	c := &Client{HTTP: s.Client(), Base: s.URL}
	ctx := t.Context()

	var f *Failure
	if _, err := c.Enrol(ctx, &Enrol{Secret: "s", Host: "web-1", Request: "pem"}); !errors.As(err, &f) || f.Kind != KindPending {
		t.Errorf("enrol: %v", err)
	}
	if _, err := c.Enrol(ctx, &Enrol{Secret: "s", Host: "Web 1", Request: "pem"}); err == nil || errors.As(err, &f) && f.Kind == KindBadRequest {
		t.Errorf("a name that is none is sent: %v", err)
	}
	d, err := c.Desired(ctx)
	if diff := cmp.Diff(&Desired{Order: Order{1, 7}, Bundle: 3, Members: &Document{Sha256: hash, Size: 4, Content: hash}}, d); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if _, err := c.Trust(ctx); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("an answer without end: %v", err)
	}
	if _, err := c.Roots(ctx); err == nil || !strings.Contains(err.Error(), "502") {
		t.Errorf("an answer of something between: %v", err)
	}
	for _, from := range [][]byte{nil, old, []byte("another")} {
		if got, err := c.Blob(ctx, Hash(blob), MostBlob, from); err != nil || !bytes.Equal(got, blob) {
			t.Errorf("blob from %d bytes: %v", len(from), err)
		}
	}
	if _, err := c.Blob(ctx, hash, MostBlob, nil); err == nil || !strings.Contains(err.Error(), "was changed on the way") {
		t.Errorf("a wrong blob: %v", err)
	}
	for _, from := range [][]byte{nil, old} {
		if _, err := c.Blob(ctx, Hash(blob), int64(len(blob))-1, from); err == nil {
			t.Error("a blob larger than it may be is taken")
		}
	}
}

// changedList is a list of prefixes, and the same with every hundredth another one.
func changedList(t testing.TB, lines int) (from, to []byte) {
	random := testseed.Rand(t)
	for range lines {
		n := random.Uint32()
		line := fmt.Sprintf("%d.%d.%d.0/24\n", byte(n), byte(n>>8), byte(n>>16))
		from = append(from, line...)
		if random.IntN(100) == 0 {
			line = fmt.Sprintf("10.%d.%d.0/24\n", byte(n>>16), byte(n>>24))
		}
		to = append(to, line...)
	}
	return from, to
}

// BenchmarkPatch makes and takes the patch of 3.8 MB.
func BenchmarkPatch(b *testing.B) {
	from, to := changedList(b, 254_000)
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		b.Fatal(err)
	}
	var patch []byte
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"make", func() (err error) { patch, err = Patch(from, to); return err }},
		{"take", func() error { _, err := Unpatch(patch, from, MostBlob); return err }},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if err := c.do(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(to)), "bytes")
			b.ReportMetric(float64(len(enc.EncodeAll(to, nil))), "compressed")
			b.ReportMetric(float64(len(patch)), "patch")
		})
	}
}

// TestPatch: of a list of which a hundredth changed, little goes over the wire.
func TestPatch(t *testing.T) {
	t.Parallel()
	from, to := changedList(t, 60_000)
	patch, err := Patch(from, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes instead of %d", len(patch), len(to))
	if len(patch) > len(to)/50 {
		t.Errorf("the patch has %d bytes of %d", len(patch), len(to))
	}
	got, err := Unpatch(patch, from, MostBlob)
	if err != nil || !bytes.Equal(got, to) {
		t.Error("the patch makes something else", err)
	}
	if got, err := Unpatch(patch, to, MostBlob); err == nil && bytes.Equal(got, to) {
		t.Error("what it starts from counts anyway")
	}
}
