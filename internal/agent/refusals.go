package agent

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"sluice/internal/agent/alert"
	"sluice/internal/agent/api"
	"sluice/internal/base/tell"
	"sluice/internal/system/kernel/peer"
)

// Of what is refused to a user so much is told in a time; of the rest the number is, when
// that is over.
const (
	mostRefusals = 10
	refusalsTime = time.Minute
)

// refusals reports what was refused. Each user has lines of his own, so that nobody hides
// what another tries.
type refusals struct {
	tell  func(event, text string, fields map[string]string) // nil: nobody listens
	every time.Duration

	mutex sync.Mutex
	users map[uint32]*refusedTo
}

type refusedTo struct{ told, left int }

// refusal is one of them.
type refusal struct {
	kind      api.Kind // "" of what came to no answer
	operation string   // "" where it is not known
	why       string
}

// add reports one, or counts it.
func (r *refusals) add(p *peer.Peer, of refusal) {
	if r.tell == nil || !r.counted(p.UID) {
		return
	}
	who := userName(p.UID)
	text := "user " + who
	if name := p.Name(); name != "" && p.UID != fleetUser {
		text += fmt.Sprintf(" (%s, process %d)", name, p.PID)
	}
	text += ": "
	if of.operation != "" {
		text += of.operation + ": "
	}
	fields := map[string]string{"USER": who, "UID": strconv.Itoa(int(p.UID)), "PID": strconv.Itoa(p.PID), "KIND": string(of.kind), "OPERATION": of.operation}
	r.tell(alert.Refused, tell.Printable(text+of.why), fields)
}

func (r *refusals) counted(uid uint32) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.users == nil {
		r.users = map[uint32]*refusedTo{}
	}
	u := r.users[uid]
	if u == nil {
		u = &refusedTo{}
		r.users[uid] = u
		time.AfterFunc(r.every, func() { r.over(uid) })
	}
	if u.told == mostRefusals {
		u.left++
		return false
	}
	u.told++
	return true
}

func (r *refusals) over(uid uint32) {
	r.mutex.Lock()
	left := r.users[uid].left
	delete(r.users, uid)
	r.mutex.Unlock()
	if left > 0 {
		who := userName(uid)
		r.tell(alert.Refused, fmt.Sprintf("user %s: %d more were refused in %s", who, left, r.every),
			map[string]string{"USER": who, "UID": strconv.Itoa(int(uid)), "MORE": strconv.Itoa(left)})
	}
}

// toldKinds are the kinds of failures that are told of: the others are for the command, which
// goes on from them or says them itself.
var toldKinds = map[api.Kind]bool{api.BadRequest: true, api.NotAllowed: true, api.TooLarge: true, api.OtherProtocol: true}

// told is where an answer is written that is told of where it refuses, or is not read.
type told struct {
	http.ResponseWriter
	to *refusals
	r  *http.Request
	p  *peer.Peer
}

// answer is the answer to a request.
func (s *server) answer(w http.ResponseWriter, r *http.Request) *api.Answer {
	if c, _ := r.Context().Value(callerKey{}).(*caller); c != nil {
		w = &told{w, &s.refusals, r, c.peer}
	}
	return api.NewAnswer(w, r)
}

// Unwrap is for http.ResponseController.
func (t *told) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Failed is told of failures by an [api.Answer].
func (t *told) Failed(f *api.Failure) {
	if toldKinds[f.Kind] {
		why, _, _ := strings.Cut(f.Text, "\n")
		t.to.add(t.p, refusal{f.Kind, operationOf(t.r), why})
	}
}

func (t *told) Write(b []byte) (int, error) {
	n, err := t.ResponseWriter.Write(b)
	return n, t.written(err)
}

// FlushError is for http.ResponseController: what is short is written by it alone.
func (t *told) FlushError() error {
	return t.written(http.NewResponseController(t.ResponseWriter).Flush())
}

func (t *told) written(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.to.add(t.p, refusal{operation: operationOf(t.r), why: "the answer is not read, and the connection closed"})
	}
	return err
}

// operationOf names what a request asks for, shortened where it is nothing that is served.
func operationOf(r *http.Request) string {
	if r.Pattern != "" && r.Pattern != "/" {
		return r.Pattern
	}
	return fmt.Sprintf("%.10s %.100s", r.Method, r.URL.Path)
}
