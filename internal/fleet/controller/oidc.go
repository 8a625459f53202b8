package controller

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/language/policy"
)

// Provider is an OpenID Connect provider that people log in with. The controller is its
// client, which it sends people back to at URL/login/callback of [Web].
type Provider struct {
	Issuer, Client, Secret string
	GroupsClaim            string // which claim has the groups
}

// flowCookie keeps what a browser has begun until it comes back from the provider.
const flowCookie = "__Host-sluice-login"

// flowFor is how long a person takes to log in at the provider, and linkFor how long a
// command has to fetch the session that came of it.
const (
	flowFor = 10 * time.Minute
	linkFor = time.Minute
)

// providerTime is how long the provider may take to answer.
const providerTime = 10 * time.Second

// mostGroups bounds the groups that a provider says somebody to be in.
const mostGroups = 500

// flow is what a browser returns.
type flow struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
	// Back is where a command on the same machine listens, and Binds the SHA-256 of the
	// secret of the session that it wants. Both are "" for a session of the browser.
	Back  string `json:"back,omitempty"`
	Binds string `json:"binds,omitempty"`
}

// provider is one whose document was read, which is tried again until it was.
type provider struct {
	mutex    sync.Mutex
	verifier *oidc.IDTokenVerifier
	config   oauth2.Config
}

func (p *provider) get(ctx context.Context, w *Web, now func() time.Time) (*oidc.IDTokenVerifier, *oauth2.Config, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.verifier == nil {
		found, err := oidc.NewProvider(ctx, w.Provider.Issuer)
		if err != nil {
			return nil, nil, fmt.Errorf("the provider %s: %w", w.Provider.Issuer, err)
		}
		p.config = oauth2.Config{
			ClientID: w.Provider.Client, ClientSecret: w.Provider.Secret, Endpoint: found.Endpoint(),
			RedirectURL: w.URL + "/login/callback", Scopes: []string{oidc.ScopeOpenID, "email", "groups"},
		}
		p.verifier = found.VerifierContext(context.WithValue(context.Background(), oauth2.HTTPClient, providerClient), &oidc.Config{ClientID: w.Provider.Client, Now: now})
	}
	return p.verifier, &p.config, nil
}

// providerClient asks the provider, and follows it nowhere else but by its document.
var providerClient = &http.Client{Timeout: providerTime}

func asking(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, providerClient)
}

// toProvider sends a browser to the provider.
func (c *Controller) toProvider(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	f := flow{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Back: q.Get("back"), Binds: q.Get("binds")}
	if f.Back != "" || f.Binds != "" {
		if _, err := hashed(f.Binds); err != nil || !isLoopback(f.Back) {
			c.show(w, http.StatusBadRequest, shown{Text: "This address was not made by sluice-controller login."})
			return errors.New("no command sends such a request")
		}
	}
	_, config, err := c.provider.get(asking(r.Context()), c.Web, c.Now)
	if err != nil {
		c.Note(err)
		c.show(w, http.StatusBadGateway, shown{Text: "The provider that people log in with does not answer. Try again later."})
		return nil
	}
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	http.SetCookie(w, &http.Cookie{
		Name: flowCookie, Value: base64.RawURLEncoding.EncodeToString(text), Path: "/", MaxAge: int(flowFor / time.Second),
		Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
	http.Redirect(w, r, config.AuthCodeURL(f.State, oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier)), http.StatusSeeOther)
	return nil
}

// isLoopback says whether a URL is of this machine alone, as RFC 8252 has it for commands.
func isLoopback(text string) bool {
	is, err := url.Parse(text)
	return err == nil && is.Scheme == "http" && (is.Hostname() == "127.0.0.1" || is.Hostname() == "::1") && is.Port() != "" && is.User == nil && is.RawQuery == "" && is.Fragment == ""
}

// callback takes who comes back from the provider.
func (c *Controller) callback(w http.ResponseWriter, r *http.Request) error {
	http.SetCookie(w, &http.Cookie{Name: flowCookie, Path: "/", MaxAge: -1, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode})
	f, who, groups, err := c.returned(r)
	if err != nil {
		c.show(w, http.StatusUnauthorized, shown{Text: "You are not logged in: " + err.Error() + "."})
		return err
	}
	secret := api.NewSecret()
	hash, err := api.SecretHash(secret)
	if err != nil {
		return err
	}
	a := store.Access{ID: api.AccessID(hash), Kind: store.AccessSession, Secret: hash, Who: who, Groups: groups, Expires: c.Now().Add(sessionFor)}
	if f.Back != "" {
		a.Kind, a.Binds, a.Expires = store.AccessLink, f.Binds, c.Now().Add(linkFor)
	}
	if err := c.Store.CreateAccess(r.Context(), who, a); err != nil {
		c.answered(err)
		c.show(w, http.StatusServiceUnavailable, shown{Text: "You are not logged in: the controller cannot do this now."})
		return nil
	}
	if f.Back != "" {
		http.Redirect(w, r, f.Back+"?link="+url.QueryEscape(secret), http.StatusSeeOther)
		return nil
	}
	http.SetCookie(w, cookie(secret, int(sessionFor/time.Second)))
	http.Redirect(w, r, "/", http.StatusSeeOther)
	return nil
}

// returned is whom the provider says to come back, and what they had begun.
func (c *Controller) returned(r *http.Request) (f flow, who string, groups []string, err error) {
	q := r.URL.Query()
	kept, err := r.Cookie(flowCookie)
	if err != nil {
		return f, "", nil, errors.New("this browser has not started to log in, or too long ago")
	}
	text, err := base64.RawURLEncoding.DecodeString(kept.Value)
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil || f.State == "" || f.Nonce == "" || subtle.ConstantTimeCompare([]byte(f.State), []byte(q.Get("state"))) != 1 {
		return f, "", nil, errors.New("the provider's answer is not for the request of this browser")
	}
	if f.Back != "" && !isLoopback(f.Back) {
		return f, "", nil, errors.New("the command that logs in is not on this machine")
	}
	if said := q.Get("error"); said != "" {
		return f, "", nil, fmt.Errorf("the provider says %.200q", said)
	}
	ctx := asking(r.Context())
	verifier, config, err := c.provider.get(ctx, c.Web, c.Now)
	if err != nil {
		c.Note(err)
		return f, "", nil, errors.New("the provider does not answer")
	}
	tokens, err := config.Exchange(ctx, q.Get("code"), oauth2.VerifierOption(f.Verifier))
	if err != nil {
		c.Note(fmt.Errorf("log in at %s: %w", c.Web.Provider.Issuer, err))
		return f, "", nil, errors.New("the provider does not accept its own code")
	}
	raw, _ := tokens.Extra("id_token").(string)
	id, err := verifier.Verify(ctx, raw)
	if err != nil {
		c.Note(fmt.Errorf("log in at %s: %w", c.Web.Provider.Issuer, err))
		return f, "", nil, errors.New("the provider's ID token is not signed for this controller, or has expired")
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(f.Nonce)) != 1 {
		return f, "", nil, errors.New("the provider's ID token is of another login")
	}
	who, groups, err = c.claims(id)
	return f, who, groups, err
}

// claims are who somebody is: by their address of mail if the provider has verified it, since
// others may be chosen freely, else by the provider's own name for them.
func (c *Controller) claims(id *oidc.IDToken) (who string, groups []string, err error) {
	var is struct {
		Email    string `json:"email"`
		Verified bool   `json:"email_verified"`
	}
	var all map[string]json.RawMessage
	if err := errors.Join(id.Claims(&is), id.Claims(&all)); err != nil {
		return "", nil, errors.New("the provider's ID token cannot be read")
	}
	who = "user:sub/" + id.Subject
	if is.Email != "" && is.Verified {
		who = policy.WhoKey("user:" + is.Email)
	} else if strings.Contains(id.Subject, "@") {
		return "", nil, errors.New("the provider has not verified your e-mail address")
	}
	if !policy.IsWho(who) {
		return "", nil, errors.New("the provider names you in a way that fleet.yaml cannot")
	}
	if text, has := all[c.Web.Provider.GroupsClaim]; has {
		if json.Unmarshal(text, &groups) != nil || len(groups) > mostGroups {
			return "", nil, fmt.Errorf("the provider's list of your groups is in an unknown form, or has more than %d", mostGroups)
		}
	}
	for _, g := range groups {
		if !policy.IsWho("oidc:" + g) {
			return "", nil, errors.New("the provider names a group in a way that fleet.yaml cannot")
		}
	}
	return who, groups, nil
}
