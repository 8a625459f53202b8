package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/internal/engine/apply"
)

// Level is that of the protocol that this program speaks. TestOlder of cli knows the one before.
const Level = 1

// Levels are those that an agent of this program understands.
var Levels = []int{Level}

// Socket is where an agent listens.
const Socket = "/run/sluice/agent.sock"

// Headers.
const (
	ProtocolHeader = "Sluice-Protocol" // of requests and answers: the level
	StateHeader    = "Sluice-State"    // of requests: the state directory that is meant
	WaitHeader     = "Sluice-Wait"     // of requests: seconds to wait for another change
	VersionHeader  = "Sluice-Version"  // of answers: of the program
)

// Meant is what requests have in common beside the namespace.
type Meant struct {
	State  string        // the state directory; "" is the agent's own
	Wait   time.Duration // for another change
	Reason string        // of a change; "" where none is given
}

const defaultWait = 10 * time.Second

// Set writes it into a request, with the level of this program.
func (m Meant) Set(r *http.Request) {
	h := r.Header
	h.Set(ProtocolHeader, strconv.Itoa(Level))
	h.Set(WaitHeader, strconv.FormatFloat(m.Wait.Seconds(), 'f', -1, 64))
	if m.State != "" {
		h.Set(StateHeader, m.State)
	}
	if m.Reason != "" {
		q := r.URL.Query()
		q.Set("reason", m.Reason)
		r.URL.RawQuery = q.Encode()
	}
}

// MeantBy reads it from a request. The error is a *Failure.
func MeantBy(r *http.Request) (Meant, error) {
	h := r.Header
	m := Meant{State: h.Get(StateHeader), Wait: defaultWait, Reason: r.URL.Query().Get("reason")}
	if text := h.Get(ProtocolHeader); text != "" {
		level, err := strconv.Atoi(text)
		if err != nil {
			return m, bad("%s: %q is not a number", ProtocolHeader, text)
		}
		if !slices.Contains(Levels, level) {
			return m, &Failure{Text: fmt.Sprintf("the agent speaks level %s of the protocol, and not %d\nhint: systemctl restart sluice-agent makes it the program that is installed", levelsText(), level), Exit: 2, Kind: OtherProtocol, Protocols: Levels}
		}
	}
	if since, has := r.URL.Query()["since"]; has { // of which what was generated takes "" and dates
		if _, err := time.Parse(time.RFC3339, since[0]); err != nil {
			return m, bad("since is %.40q, and no time such as 2026-06-01T12:00:00Z", since[0])
		}
	}
	if text := h.Get(WaitHeader); text != "" {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || !(seconds >= 0 && seconds <= 1e6) {
			return m, bad("%s: %q is not a number of seconds", WaitHeader, text)
		}
		m.Wait = time.Duration(seconds * float64(time.Second))
	}
	return m, nil
}

func levelsText() string {
	var texts []string
	for _, l := range Levels {
		texts = append(texts, strconv.Itoa(l))
	}
	return strings.Join(texts, " or ")
}

// Read reads the body of a request, of at most so many bytes and with no fields that are
// not known: an older agent must not pass over what a newer caller asks for. The error is
// a *Failure.
func Read[T any](w http.ResponseWriter, r *http.Request, most int64) (v T, err error) {
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, most))
	body.DisallowUnknownFields()
	err = body.Decode(&v)
	if err == nil {
		if _, err = body.Token(); errors.Is(err, io.EOF) {
			return v, nil
		}
		err = cmp.Or(err, errors.New("more follows the request"))
	}
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return v, &Failure{Text: fmt.Sprintf("the request is larger than %d bytes", large.Limit), Exit: 2, Kind: TooLarge}
	}
	return v, bad("the request cannot be read: %v", err)
}

// Kind is what a program can tell failures apart by; "" is any other.
type Kind string

// Kinds of failures.
const (
	BadRequest     Kind = "bad-request"
	NotAllowed     Kind = "not-allowed" // the caller may not
	NotServed      Kind = "not-served"  // this agent has no such operation or namespace
	Busy           Kind = "busy"        // another change is at work
	NoPolicy       Kind = "no-policy"   // none runs
	TooLarge       Kind = "too-large"
	OtherState     Kind = "other-state"     // another state directory is meant than the agent's
	OtherFiles     Kind = "other-files"     // the caller has other files below the same names
	OtherNamespace Kind = "other-namespace" // the caller is in another one than the agent
	OtherProtocol  Kind = "protocol"        // the agent does not speak this level
	TooMany        Kind = "too-many"        // connections
	Ending         Kind = "ending"          // the agent ends
)

// statuses are those of HTTP.
var statuses = map[Kind]int{
	"":         http.StatusUnprocessableEntity,
	NoPolicy:   http.StatusUnprocessableEntity,
	BadRequest: http.StatusBadRequest, NotAllowed: http.StatusForbidden, NotServed: http.StatusNotFound, Busy: http.StatusConflict,
	TooLarge: http.StatusRequestEntityTooLarge, OtherState: http.StatusMisdirectedRequest, OtherFiles: http.StatusMisdirectedRequest, OtherNamespace: http.StatusMisdirectedRequest,
	OtherProtocol: http.StatusUpgradeRequired, TooMany: http.StatusTooManyRequests, Ending: http.StatusServiceUnavailable,
}

// Failure is why something was not done.
type Failure struct { //nolint:errname // the document's word
	Text string `json:"error"`       // for a reader, with what to type against it
	Exit int    `json:"exit-status"` // of the command: 1 refused on purpose or found, 2 failed
	Kind Kind   `json:"kind,omitempty"`
	// Protocols is the levels that the agent speaks, of OtherProtocol.
	Protocols []int `json:"protocols,omitempty"`
	// Result is what was done before it failed, where there is something.
	Result json.RawMessage `json:"result,omitempty"`
}

func (f *Failure) Error() string { return f.Text }

// Ended is for words.Ended.
func (f *Failure) Ended() (text string, status int) { return f.Text, f.Exit }

func bad(format string, args ...any) *Failure {
	return &Failure{Text: fmt.Sprintf(format, args...), Exit: 2, Kind: BadRequest}
}

// Is lets errors.Is find what a command goes on from.
func (f *Failure) Is(target error) bool {
	switch f.Kind {
	case NoPolicy:
		return target == apply.ErrNoPolicy
	case NotAllowed:
		return target == fs.ErrPermission
	}
	return false
}

// Untouched says that nothing was begun, and that another may do it.
func (f *Failure) Untouched() bool {
	return f.Kind == NotServed || f.Kind == OtherState || f.Kind == OtherFiles || f.Kind == OtherNamespace
}
