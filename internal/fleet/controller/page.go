package controller

import (
	"encoding/json"
	"net/http"
	"strings"

	"sluice/internal/fleet/api"
	"sluice/web"
)

// pageSession is what the page knows of who looks at it.
type pageSession struct {
	Mode    string   `json:"mode"`
	CSRF    string   `json:"csrf"`
	Name    string   `json:"name"`
	Who     string   `json:"who"`
	Says    string   `json:"says"`
	May     string   `json:"may"`
	Role    api.Role `json:"role,omitempty"`
	Version string   `json:"version"`
	Signs   bool     `json:"signs,omitempty"`
}

// session tells the page who is logged in, and what they may: the greatest role that they
// have, for whichever hosts.
func (c *Controller) session(w http.ResponseWriter, r *http.Request) {
	who := as(r)
	out := pageSession{Mode: "fleet", Name: c.Fleet(), Who: strings.TrimPrefix(who.Who, "user:"), May: "nothing", Version: c.Version, Signs: c.signs(r.Context()) == nil}
	if cookie, err := r.Cookie(sessionCookie); err == nil {
		out.CSRF = web.CSRF(cookie.Value)
	}
	may := []string{}
	for _, g := range who.all() {
		of := "all hosts"
		if g.hosts != nil {
			of = "hosts of " + g.hosts.String()
		}
		may = append(may, string(g.role)+" for "+of)
		if out.Role == "" || g.role.Includes(out.Role) {
			out.Role = g.role
		}
	}
	switch {
	case len(may) == 0:
		may = []string{"nobody: access of fleet.yaml gives no role to you"}
	case out.Role == api.Viewer:
		out.May = "read"
	default:
		out.May = "change"
	}
	out.Says = "logged in as " + out.Who + ", " + strings.Join(may, "; ")
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}
