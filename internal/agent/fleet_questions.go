package agent

import (
	"context"
	"encoding/json"
	"math"
	"net/http"

	"sluice/internal/agent/api"
	"sluice/internal/agent/config"
	"sluice/internal/engine/apply"
	"sluice/internal/system/kernel/peer"
)

// fleetUser is the caller of what a fleet asks. No user has this number.
const fleetUser = math.MaxUint32

// private are the operations that say who has to do with the host: whose packets, connections and
// bans there are.
var private = map[string]bool{
	"GET /v1/namespaces/{namespace}/log":            true,
	"GET /v1/namespaces/{namespace}/facts":          true, // who is logged in, and whom the host asks
	"GET /v1/namespaces/{namespace}/bans":           true,
	"GET /v1/namespaces/{namespace}/bans/past":      true,
	"GET /v1/namespaces/{namespace}/allows":         true,
	"GET /v1/namespaces/{namespace}/sets":           true,
	"POST /v1/namespaces/{namespace}/drops":         true,
	"POST /v1/namespaces/{namespace}/entries":       true,
	"POST /v1/namespaces/{namespace}/entries/watch": true,
	"POST /v1/namespaces/{namespace}/top":           true,
	"POST /v1/namespaces/{namespace}/lists/plan":    true, // whose connections it would cut
}

// userName is the name of a caller.
func userName(uid uint32) string {
	if uid == fleetUser {
		return "fleet"
	}
	return apply.UserName(int(uid))
}

// byFleet answers what the controller of the fleet asks, as a caller that may read what the
// agent's file says, and nothing else.
func (s *server) byFleet(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		as := &caller{peer: peer.Self(fleetUser), by: byFleet}
		as.once.Do(func() {}) // it is known who it is
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, as)))
	})
}

// ofFleet says that a fleet asks.
func (q *request) ofFleet() bool { return q.peer != nil && q.peer.UID == fleetUser }

// givesNoPolicy refuses a request of a fleet that names a policy or has one in it. A policy that
// nobody signed would name files of the host, and addresses that lists are asked for at.
func givesNoPolicy(request json.RawMessage) error {
	var has struct{ Policy api.PolicyFile }
	if len(request) > 0 {
		if err := json.Unmarshal(request, &has); err != nil {
			return err
		}
	}
	if has.Policy.File != "" || unnamed(has.Policy) != nil {
		return refused(api.NotAllowed, "a fleet can only ask about the policy that runs")
	}
	return nil
}

func notForFleet(may config.Questions) error {
	if may == config.None {
		return refused(api.NotAllowed, "this host answers no questions of its fleet: its agent.yaml says so")
	}
	return refused(api.NotAllowed, "this host does not show its fleet packets, connections and bans: its agent.yaml says so")
}
