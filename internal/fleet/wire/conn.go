package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

const subprotocol = "sluice.v"

// Conn is a stream of messages. Receive is for one caller at a time, and the rest for
// any number.
type Conn struct {
	ws    *websocket.Conn
	level int
	agent bool // this side is the agent
	began time.Time
	heard *atomic.Int64 // when it was last, from began
}

// Dial opens the stream of an agent. base is https://CONTROLLER:7443; client has the
// certificates, and no timeout of its own. A controller that refuses is a *Failure.
func Dial(ctx context.Context, client *http.Client, base string) (*Conn, error) {
	return dial(ctx, client, base, Levels)
}

func dial(ctx context.Context, client *http.Client, base string, levels []int) (*Conn, error) {
	ws, answer, err := websocket.Dial(ctx, base+PathAgent, &websocket.DialOptions{HTTPClient: client, Subprotocols: names(levels)}) //nolint:bodyclose // Dial has, and answer keeps its first 1,024 bytes
	if err != nil {
		if f := failed(answer); f != nil {
			return nil, f
		}
		return nil, err
	}
	ws.SetReadLimit(MostFromController)
	level := common(levels, []string{ws.Subprotocol()})
	if level == 0 {
		_ = ws.Close(websocket.StatusProtocolError, "no level of the protocol")
		return nil, &Failure{Text: "what answers at " + base + " is not a controller of a fleet", Kind: KindProtocol}
	}
	return &Conn{ws: ws, level: level, agent: true, began: time.Now(), heard: new(atomic.Int64)}, nil
}

// Accept makes a stream of the request of an agent. One that it cannot be made of has been
// answered.
func Accept(w http.ResponseWriter, r *http.Request) (*Conn, error) {
	return accept(w, r, Levels)
}

func accept(w http.ResponseWriter, r *http.Request, levels []int) (*Conn, error) {
	var offered []string
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(line, ",") {
			offered = append(offered, strings.TrimSpace(name))
		}
	}
	level := common(levels, offered)
	if level == 0 {
		f := &Failure{Text: fmt.Sprintf("the agent speaks %s, and the controller %s: upgrade the older of the two", list(offered), list(names(levels))), Kind: KindProtocol}
		Fail(w, f)
		return nil, f
	}
	began, heard := time.Now(), new(atomic.Int64)
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{name(level)}, CompressionMode: websocket.CompressionDisabled,
		OnPingReceived: func(context.Context, []byte) bool {
			heard.Store(int64(time.Since(began)))
			return true
		},
	})
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(MostFromAgent)
	return &Conn{ws: ws, level: level, began: began, heard: heard}, nil
}

// Silent is for how long the other side has said nothing, its pings counted where it is an
// agent.
func (c *Conn) Silent() time.Duration { return time.Since(c.began) - time.Duration(c.heard.Load()) }

func name(level int) string { return subprotocol + strconv.Itoa(level) }

func names(levels []int) (ns []string) {
	for _, l := range levels {
		ns = append(ns, name(l))
	}
	return ns
}

func list(names []string) string {
	if len(names) == 0 || names[0] == "" {
		return "none of its levels"
	}
	return fmt.Sprintf("%.200s", strings.Join(names, " and "))
}

// common is the highest level that is offered, 0 if there is none.
func common(levels []int, offered []string) (highest int) {
	for _, l := range levels {
		for _, o := range offered {
			if o == name(l) {
				highest = max(highest, l)
			}
		}
	}
	return highest
}

// Level is that of the protocol which both sides speak.
func (c *Conn) Level() int { return c.level }

// Send sends a message, and returns when the kernel has it. Once ctx is done while it
// writes, the stream is of no use any more.
func (c *Conn) Send(ctx context.Context, m *Message) error {
	text, err := Encode(m)
	if err != nil {
		return err
	}
	return c.SendEncoded(ctx, text)
}

// SendEncoded sends what Encode has made, as Send does: one text for many agents.
func (c *Conn) SendEncoded(ctx context.Context, text []byte) error {
	return c.ws.Write(ctx, websocket.MessageText, text)
}

// mostUnknown is how many messages in a row a side may send that the other does not know.
const mostUnknown = 8

// Receive waits for the next message, and passes over a few that this program does not
// know. After an error the stream is of no use any more: Closed says whether the other
// side has ended it.
func (c *Conn) Receive(ctx context.Context) (*Message, error) {
	for range mostUnknown {
		kind, in, err := c.ws.Reader(ctx)
		if err != nil {
			return nil, err
		}
		m, wrong, err := c.read(in)
		if err != nil {
			return nil, err
		}
		c.heard.Store(int64(time.Since(c.began)))
		if kind != websocket.MessageText {
			return nil, c.wrong(errors.New("it is not a text"))
		}
		if wrong != nil {
			return nil, c.wrong(wrong)
		}
		if m.kinds() == 0 {
			continue
		}
		if m.FromAgent() == c.agent {
			return nil, c.wrong(errors.New("it is for the other side"))
		}
		return m, nil
	}
	return nil, c.wrong(errors.New("nothing of it is known"))
}

// buffers are those of messages, of which nothing is left in what Decode gives.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// mostKept is how large a buffer may be that is used again.
const mostKept = 128 << 10

func (c *Conn) read(in io.Reader) (m *Message, wrong, err error) {
	text := buffers.Get().(*bytes.Buffer)
	defer func() {
		if text.Cap() <= mostKept {
			text.Reset()
			buffers.Put(text)
		}
	}()
	if _, err := text.ReadFrom(in); err != nil {
		return nil, nil, err
	}
	m, wrong = Decode(text.Bytes())
	return m, wrong, nil
}

// wrong closes the stream over a message that cannot be taken.
func (c *Conn) wrong(err error) error {
	_ = c.ws.Close(websocket.StatusPolicyViolation, fmt.Sprintf("a message is wrong: %.80v", err))
	return fmt.Errorf("a message is wrong: %w", err)
}

// Ping returns once the other side has answered. Receive has to be at work meanwhile.
func (c *Conn) Ping(ctx context.Context) error { return c.ws.Ping(ctx) }

// Close ends the stream with a reason of at most 120 bytes, and waits for the other side
// to agree, a few seconds at most.
func (c *Conn) Close(why string) error {
	return c.ws.Close(websocket.StatusNormalClosure, fmt.Sprintf("%.120s", why))
}

// Cut ends the stream at once.
func (c *Conn) Cut() { _ = c.ws.CloseNow() }

// Fail answers a request with a failure.
func Fail(w http.ResponseWriter, f *Failure) {
	status, known := statuses[f.Kind]
	if !known {
		status = http.StatusInternalServerError
	}
	Answer(w, status, f)
}

var statuses = map[Kind]int{
	KindBadRequest: http.StatusBadRequest, KindToken: http.StatusForbidden, KindPending: http.StatusAccepted, KindTaken: http.StatusConflict,
	KindRevoked: http.StatusForbidden, KindCertificate: http.StatusForbidden, KindNotFound: http.StatusNotFound, KindBusy: http.StatusTooManyRequests,
	KindUnavailable: http.StatusServiceUnavailable, KindProtocol: http.StatusUpgradeRequired,
	KindUnknownCaller: http.StatusUnauthorized, KindRole: http.StatusForbidden,
}

// Answer answers a request with a value in JSON.
func Answer(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// failed is what an answer says that refuses, nil where it does not say.
func failed(r *http.Response) *Failure {
	if r == nil || r.Body == nil || r.StatusCode < 400 && r.StatusCode != http.StatusAccepted {
		return nil
	}
	f := &Failure{}
	if text, err := io.ReadAll(io.LimitReader(r.Body, 2*mostText)); err == nil && Read(text, f) == nil {
		return f
	}
	return nil
}
