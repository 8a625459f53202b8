package controller

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sluice/internal/base/english"
	"sluice/internal/base/selector"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
	"sluice/internal/system/kernel/peer"
)

// caller is who asks for an operation.
type caller struct {
	Who string // as the audit names them
	// Role is what they may, and Hosts of which hosts: of an operation the widest that they
	// have and that it wants. Hosts is nil where it is of all.
	Role    api.Role
	Hosts   *selector.Selector
	grants  []grant // where they have several
	session string  // the id of what they have shown; "" on the socket
	program bool    // it is a token
	makers  []string
	expires time.Time
}

// principal is who waits behind themselves, and has a share of what there is, however many tokens
// or sessions they have; "" on the socket.
func (who caller) principal() string {
	if who.session == "" {
		return ""
	}
	return policy.WhoKey(who.Who)
}

// grant is a role for some hosts, nil being all.
type grant struct {
	role  api.Role
	hosts *selector.Selector
}

// all is what the caller may.
func (who caller) all() []grant {
	if who.grants == nil && who.Role != "" {
		return []grant{{who.Role, who.Hosts}}
	}
	return who.grants
}

// to is the caller for an operation that wants a role: for the hosts for which they have it,
// or a greater one. Without any it is false, and Role is the greatest that they have.
func (who caller) to(role api.Role) (caller, bool) {
	var hosts []*selector.Selector
	for _, g := range who.all() {
		if g.role.Includes(role) {
			hosts = append(hosts, g.hosts)
		}
		if g.role.Includes(who.Role) || who.Role == "" {
			who.Role = g.role
		}
	}
	who.Hosts = selector.Or(hosts...)
	return who, len(hosts) > 0
}

type callerKey struct{}

// as is who asks: nobody, with no role, where that is not known.
func as(r *http.Request) caller {
	is, _ := r.Context().Value(callerKey{}).(caller)
	return is
}

// sees says whether a host is one of those for which the role of the caller holds.
func (who caller) sees(host string, labels map[string]string) bool {
	return who.Hosts == nil || who.Hosts.Match(named(host, labels))
}

// hosts are those of a selector for which the role holds.
func (who caller) hosts(asked string) (*selector.Selector, error) {
	if asked == "" {
		return who.Hosts, nil
	}
	read, err := selector.Parse(asked)
	if err != nil {
		return nil, wrong("%v", err)
	}
	return selector.And(read, who.Hosts), nil
}

// host is a host that a request names: not found where the role does not hold for it.
func (c *Controller) host(who caller, id string) error {
	if who.Hosts == nil {
		return nil
	}
	if h, has := c.view.Load().hosts[id]; !has || !who.sees(id, h.Labels) {
		return fmt.Errorf("host %.253q: %w", id, store.ErrNotFound)
	}
	return nil
}

func unpermitted(format string, args ...any) *wire.Failure {
	return &wire.Failure{Text: fmt.Sprintf(format, args...), Kind: wire.KindRole}
}

// local is who is at the other end of the socket, nobody where it is one who may not ask.
func local(conn net.Conn) caller {
	over, is := conn.(*net.UnixConn)
	if !is {
		return caller{}
	}
	p, err := peer.Of(over)
	if err != nil {
		return caller{}
	}
	defer p.Close()
	if p.UID != 0 && p.UID != uint32(os.Geteuid()) { //nolint:gosec // it is one of the kernel's
		return caller{}
	}
	id := strconv.FormatUint(uint64(p.UID), 10)
	if u, err := user.LookupId(id); err == nil {
		id = u.Username
	}
	return caller{Who: "operator:" + id, Role: api.Admin}
}

// operations is the interface as its document has it: who asks has to be known, and to have
// the role that an operation says, before anything of the request is read.
func (c *Controller) operations() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if others := methods(mux, r); len(others) > 0 {
			w.Header().Set("Allow", strings.Join(others, ", "))
			wire.Answer(w, http.StatusMethodNotAllowed, wrong("%.200s has no %.40s, and has %s", r.URL.Path, r.Method, english.List(others)))
			return
		}
		wire.Fail(w, &wire.Failure{Text: fmt.Sprintf("a controller has no %s %.200s", r.Method, r.URL.Path), Kind: wire.KindNotFound})
	})
	api.HandlerWithOptions(operator{c}, api.StdHTTPServerOptions{
		BaseRouter: mux,
		ErrorHandlerFunc: func(w http.ResponseWriter, _ *http.Request, err error) {
			wire.Fail(w, &wire.Failure{Text: err.Error(), Kind: wire.KindBadRequest})
		},
	})
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		mux.HandleFunc(method+" "+api.AgentPattern, operator{c}.askHost)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := as(r)
		if who.Who == "" {
			wire.Fail(w, &wire.Failure{Text: "only root and the user that the controller runs as may use it", Kind: wire.KindUnknownCaller})
			return
		}
		_, pattern := mux.Handler(r)
		o, has := api.Operations()[pattern]
		who, may := who.to(o.Role)
		switch {
		case !has && pattern != "/":
			wire.Fail(w, unpermitted("%s says by no role who may ask it", pattern))
			return
		case who.Role == "":
			wire.Fail(w, unpermitted("%s has no role here: access of fleet.yaml gives roles", who.Who))
			return
		case has && !may:
			wire.Fail(w, unpermitted("%s has the role %s, and this requires the role %s", who.Who, who.Role, o.Role))
			return
		case has && who.Hosts != nil && !o.Within:
			wire.Fail(w, unpermitted("%s has the role %s for hosts of %s, and this is of all hosts", who.Who, who.Role, who.Hosts))
			return
		}
		for name, values := range r.URL.Query() {
			if most, has := o.Longest[name]; has && utf8.RuneCountInString(values[0]) > most {
				wire.Fail(w, wrong("%s has more than %d characters", name, most))
				return
			}
			if _, err := time.Parse(time.RFC3339, values[0]); err != nil && slices.Contains(o.Times, name) {
				wire.Fail(w, wrong("%s is %.40q, and no time such as 2026-06-01T12:00:00Z", name, values[0])) // what was generated takes "" and dates
				return
			}
		}
		r = r.WithContext(context.WithValue(r.Context(), callerKey{}, who))
		if wants, err := c.wantsApproval(r, o); err != nil || wants {
			if err != nil {
				wire.Fail(w, refusal(err))
				return
			}
			operator{c}.suspend(w, r, who, o)
			return
		}
		if o.ID == "putBlob" {
			rc, until := http.NewResponseController(w), time.Now().Add(blobTime)
			_, _ = rc.SetReadDeadline(until), rc.SetWriteDeadline(until) // the socket has none
		}
		mux.ServeHTTP(w, r)
	})
}

// methods are those by which a path can be asked.
func methods(mux *http.ServeMux, r *http.Request) (all []string) {
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete} {
		other := *r
		other.Method = method
		if _, pattern := mux.Handler(&other); pattern != "/" && pattern != "" {
			all = append(all, method)
		}
	}
	return all
}

// commands is the server of the socket.
func (c *Controller) commands() *http.Server {
	return &http.Server{
		Handler:           c.operations(),
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: headerBytes,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, callerKey{}, local(conn))
		},
	}
}
