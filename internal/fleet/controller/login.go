package controller

import (
	"context"
	"errors"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

// sessionCookie is the session of a browser. The prefix has browsers take it of this host
// alone, over HTTPS.
const sessionCookie = "__Host-sluice-session"

// sessionFor is how long a person stays logged in.
const sessionFor = 12 * time.Hour

// mostForm bounds what a browser sends to log in, in bytes.
const mostForm = 16 << 10

// sameOrigin refuses what another page has a browser send.
var sameOrigin = http.NewCrossOriginProtection()

func cookie(value string, age int) *http.Cookie {
	return &http.Cookie{Name: sessionCookie, Value: value, Path: "/", MaxAge: age, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}
}

// granted is what the newest bundle's fleet.yaml gives to somebody of some groups.
func (c *Controller) granted(ctx context.Context, who string, groups []string) ([]grant, error) {
	fleet, err := c.newestFleet(ctx)
	if err != nil {
		return nil, err
	}
	out := []grant{}
	for _, a := range fleet.Access {
		group, isGroup := strings.CutPrefix(a.Who, "oidc:")
		if isGroup && slices.Contains(groups, group) || !isGroup && policy.WhoKey(a.Who) == policy.WhoKey(who) {
			out = append(out, grant{api.Role(a.Role), a.Hosts})
		}
	}
	return out, nil
}

// newestFleet is what fleet.yaml says in the newest bundle that was published; nothing before
// the first.
func (c *Controller) newestFleet(ctx context.Context) (*policy.Fleet, error) {
	newest := c.newestBundle()
	if newest == 0 {
		return &policy.Fleet{}, nil
	}
	return c.fleetFile(ctx, newest)
}

// newestBundle is the number of the newest bundle that was published, 0 before the first.
func (c *Controller) newestBundle() (newest int64) {
	v := c.view.Load()
	if listed := c.listed.Load(); listed != nil {
		for _, n := range *listed {
			if _, has := v.bundles[n]; has {
				newest = max(newest, n)
			}
		}
	}
	return newest
}

// fleetFile is what fleet.yaml says in a bundle.
func (c *Controller) fleetFile(ctx context.Context, bundle int64) (*policy.Fleet, error) {
	of, err := c.contents.of(ctx, c.Store, bundle)
	if err != nil {
		return nil, err
	}
	of.mutex.Lock()
	defer of.mutex.Unlock()
	if of.fleet == nil {
		read, _, err := c.policyOf(ctx, &of.manifest)
		if err != nil {
			return nil, err
		}
		of.fleet = read.Fleet
	}
	return of.fleet, nil
}

// page is what a browser is shown that logs in; what the page of web is, whoever is logged in.
var page = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{{.Fleet}}</title>
<link rel="stylesheet" href="/assets/style.css"><link rel="icon" href="/icon.svg"></head>
<body class="login"><h1>{{.Fleet}}</h1><p>{{.Text}}</p>
{{if .Link}}<form method="post" action="/login"><input type="hidden" name="link" value="{{.Link}}"><button class="main">Log in</button></form>{{end}}
</body></html>
`))

// shown is what the page says.
type shown struct{ Fleet, Text, Link string }

func (c *Controller) show(w http.ResponseWriter, status int, s shown) {
	s.Fleet = c.Fleet()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = page.Execute(w, s)
}

// loginPage asks whether to use a link, which programs that look at links do not press.
// Without one it sends people to the provider.
func (c *Controller) loginPage(w http.ResponseWriter, r *http.Request) error {
	link := r.URL.Query().Get("link")
	if link == "" && c.Web.Provider != nil {
		return c.toProvider(w, r)
	}
	if _, err := api.SecretHash(link); err != nil {
		text := "This link is not whole. Ask an admin of the fleet for another one"
		if link == "" {
			text = "You log in by a link, which an admin of the fleet makes for you"
		}
		c.show(w, http.StatusBadRequest, shown{Text: text + ": sluice-controller access link NAME."})
		return err
	}
	c.show(w, http.StatusOK, shown{Text: "This link logs you in, once.", Link: link})
	return nil
}

// login makes a session of a link: of a browser, whose cookie it is, or of a program that
// sends the link and the hash of the session's secret.
func (c *Controller) login(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	if r.Header.Get("Content-Type") == "application/json" {
		asked, fine := in[api.Login](w, r)
		if !fine {
			return errors.New("the request is wrong")
		}
		secret, err := hashed(asked.Secret)
		var a store.Access
		if err == nil {
			a, err = c.enter(r.Context(), asked.Link, secret)
		}
		if err != nil {
			wire.Fail(w, failure(err))
			return err
		}
		wire.Answer(w, http.StatusOK, shownAccess(a))
		return nil
	}
	if err := sameOrigin.Check(r); err != nil {
		c.show(w, http.StatusForbidden, shown{Text: "Another page has sent this."})
		return err
	}
	session := api.NewSecret()
	secret, err := api.SecretHash(session)
	if err == nil {
		_, err = c.enter(r.Context(), r.PostFormValue("link"), secret)
	}
	if err != nil {
		c.show(w, http.StatusUnauthorized, shown{Text: "You are not logged in: " + failure(err).Text + "."})
		return err
	}
	http.SetCookie(w, cookie(session, int(sessionFor/time.Second)))
	http.Redirect(w, r, "/", http.StatusSeeOther)
	return nil
}

// enter begins a session by a link.
func (c *Controller) enter(ctx context.Context, link string, secret [32]byte) (store.Access, error) {
	hash, err := api.SecretHash(link)
	if err != nil {
		return store.Access{}, unknownCaller("this is not a link to log in")
	}
	a, err := c.Store.Login(ctx, hash, api.AccessID(secret), secret, c.Now().Add(sessionFor))
	c.answered(err)
	if errors.Is(err, store.ErrNotFound) {
		return a, unknownCaller("the link was used or has expired; ask for another one")
	}
	return a, err
}
