package controller

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"sluice/internal/base/english"
	"sluice/internal/base/selector"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

// hashed reads the SHA-256 of a secret.
func hashed(text string) (hash [32]byte, err error) {
	if n, err := hex.Decode(hash[:], []byte(text[:min(len(text), 64)])); err != nil || n != 32 || len(text) != 64 {
		return hash, wrong("the secret's SHA-256 is 64 digits")
	}
	return hash, nil
}

func (o operator) Tokens(w http.ResponseWriter, r *http.Request) {
	all, err := o.Store.Tokens(r.Context())
	out := api.Tokens{Tokens: []api.Token{}}
	for _, t := range all {
		if as(r).sees("", t.Labels) {
			out.Tokens = append(out.Tokens, api.Token{
				Id: t.ID, Labels: t.Labels, Uses: t.Uses, Used: t.Used, Created: t.Created, By: t.By, Expires: t.Expires, Withdrawn: t.Withdrawn,
				Approve: t.Approve,
			})
		}
	}
	o.done(w, out, err)
}

// usable is the hash of a token's secret, or why no host could enrol by such a token.
func usable(t api.NewToken) (secret [32]byte, err error) {
	if t.Id == "" || len(t.Id) > 64 || t.Uses < 1 || t.Uses > 1_000_000 {
		return secret, wrong("a token has an id of at most 64 bytes and 1 to 1,000,000 uses")
	}
	if err := trust.CheckLabels(t.Labels); err != nil {
		return secret, wrong("%v", err)
	}
	return hashed(t.Secret)
}

func (o operator) CreateToken(w http.ResponseWriter, r *http.Request) {
	t, fine := in[api.NewToken](w, r)
	if !fine {
		return
	}
	who := as(r)
	t.Expires = o.ends(r, t.Expires)
	secret, err := usable(t)
	if err == nil && !t.Expires.After(o.Now()) {
		err = wrong("a token that expires at %s is good for nothing", english.Moment(t.Expires))
	}
	if err == nil && !who.sees("", t.Labels) {
		err = unpermitted("%s may enrol hosts of %s, and a host of this token is none", who.Who, who.Hosts)
	}
	if err == nil {
		err = o.Store.CreateToken(r.Context(), who.Who, store.Token{ID: t.Id, Secret: secret, Labels: t.Labels, Uses: t.Uses, Expires: t.Expires, Approve: t.Approve})
	}
	o.done(w, nil, err)
}

func (o operator) WithdrawToken(w http.ResponseWriter, r *http.Request, id string) {
	who := as(r)
	if who.Hosts != nil {
		all, err := o.Store.Tokens(r.Context())
		if err == nil && !slices.ContainsFunc(all, func(t store.Token) bool { return t.ID == id && who.sees("", t.Labels) }) {
			err = fmt.Errorf("token %.64q: %w", id, store.ErrNotFound)
		}
		if err != nil {
			o.done(w, nil, err)
			return
		}
	}
	o.done(w, nil, o.Store.WithdrawToken(r.Context(), who.Who, id))
}

// longestAccess is how long a token by which the controller is asked is good.
const longestAccess = 366 * 24 * time.Hour

var accessName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func (o operator) Accesses(w http.ResponseWriter, r *http.Request) {
	all, err := o.Store.Accesses(r.Context())
	out := api.Accesses{Access: []api.Access{}}
	for _, a := range all {
		out.Access = append(out.Access, shownAccess(a))
	}
	o.done(w, out, err)
}

func shownAccess(a store.Access) api.Access {
	return api.Access{
		Id: a.ID, Kind: api.AccessKind(a.Kind), Who: a.Who, Role: api.Role(a.Role), Hosts: a.Hosts,
		Created: a.Created, By: a.By, Expires: a.Expires, Withdrawn: a.Withdrawn, Used: a.Used,
	}
}

func (o operator) CreateAccess(w http.ResponseWriter, r *http.Request) {
	asked, fine := in[api.NewAccess](w, r)
	if !fine {
		return
	}
	asked.Expires = o.ends(r, asked.Expires)
	a, err := o.access(as(r), asked)
	if err == nil {
		err = o.Store.CreateAccess(r.Context(), a.By, a)
	}
	if err != nil {
		o.done(w, nil, err)
		return
	}
	o.done(w, shownAccess(a), nil)
}

// access is what somebody gives to a program: of the hosts for which their own role holds.
func (o operator) access(who caller, asked api.NewAccess) (store.Access, error) {
	secret, err := hashed(asked.Secret)
	hosts := (*selector.Selector)(nil)
	switch now := o.Now(); {
	case err != nil:
	case !accessName.MatchString(asked.Name):
		err = wrong("the name of a token has 1 to 63 letters, digits and . _ -")
	case !who.Role.Includes(asked.Role):
		err = wrong("%.40q is not a role that %s can give", asked.Role, who.Who)
	case !asked.Expires.After(now) || asked.Expires.After(now.Add(longestAccess)):
		err = wrong("a token ends within 366 days, and not before now: %s", english.Moment(asked.Expires))
	default:
		hosts, err = who.hosts(asked.Hosts)
	}
	a := store.Access{
		ID: api.AccessID(secret), Kind: store.AccessToken, Secret: secret, Who: "token:" + asked.Name, Role: string(asked.Role),
		Created: o.Now(), By: who.Who, Expires: asked.Expires,
	}
	if err == nil {
		a.Makers, err = who.makersOf()
	}
	if err == nil && hosts != nil {
		a.Hosts = hosts.String()
		if _, long := selector.Parse(a.Hosts); long != nil {
			err = wrong("%.80s…: %v", a.Hosts, long)
		}
	}
	return a, err
}

// longestLink is how long a link to log in is good.
const longestLink = 24 * time.Hour

func (o operator) CreateLink(w http.ResponseWriter, r *http.Request) {
	asked, fine := in[api.NewLink](w, r)
	if !fine {
		return
	}
	who, now := as(r), o.Now()
	asked.Expires = o.ends(r, asked.Expires)
	secret, err := hashed(asked.Secret)
	hosts := (*selector.Selector)(nil)
	switch {
	case err != nil:
	case asked.User == "" || !policy.IsWho("user:"+asked.User):
		err = wrong("a user has a name of at most 200 bytes, such as erika@example.net")
	case asked.Role != "" && !slices.Contains(api.Roles, asked.Role):
		err = wrong("%.40q is not a role", asked.Role)
	case asked.Role == "" && asked.Hosts != "":
		err = wrong("hosts are of a role, and none is given")
	case !asked.Expires.After(now) || asked.Expires.After(now.Add(longestLink)):
		err = wrong("a link ends within a day, and not before now: %s", english.Moment(asked.Expires))
	default:
		hosts, err = who.hosts(asked.Hosts)
	}
	a := store.Access{
		ID: api.AccessID(secret), Kind: store.AccessLink, Secret: secret, Who: policy.WhoKey("user:" + asked.User), Role: string(asked.Role),
		Created: now, By: who.Who, Expires: asked.Expires,
	}
	if hosts != nil {
		a.Hosts = hosts.String()
	}
	if err == nil {
		a.Makers, err = who.makersOf()
	}
	if err == nil {
		err = o.Store.CreateAccess(r.Context(), who.Who, a)
	}
	if err != nil {
		o.done(w, nil, err)
		return
	}
	o.done(w, shownAccess(a), nil)
}

func (o operator) Session(w http.ResponseWriter, r *http.Request) {
	who := as(r)
	out := api.Session{Who: who.Who, Expires: who.expires, Grants: []api.Grant{}}
	for _, g := range who.all() {
		hosts := ""
		if g.hosts != nil {
			hosts = g.hosts.String()
		}
		out.Grants = append(out.Grants, api.Grant{Role: g.role, Hosts: hosts})
	}
	o.done(w, out, nil)
}

func (o operator) EndSession(w http.ResponseWriter, r *http.Request) {
	who := as(r)
	if who.session == "" || !strings.HasPrefix(who.Who, "user:") {
		wire.Fail(w, wrong("%s has no session; a token is withdrawn by its id", who.Who))
		return
	}
	http.SetCookie(w, cookie("", -1))
	o.withdraw(w, r, who.session)
}

func (o operator) WithdrawAccess(w http.ResponseWriter, r *http.Request, id string) {
	o.withdraw(w, r, id)
}

func (o operator) withdraw(w http.ResponseWriter, r *http.Request, id string) {
	err := o.Store.WithdrawAccess(r.Context(), as(r).Who, id)
	if err == nil {
		o.lately.withdrawn(id)
	}
	o.done(w, nil, err)
}

// mostEntries is how many entries of the audit one answer has.
const mostEntries = 1000

func (o operator) Audit(w http.ResponseWriter, r *http.Request, params api.AuditParams) {
	limit := params.Limit
	if limit == 0 {
		limit = 50
	}
	if limit < 1 || limit > mostEntries || params.After != nil && *params.After < 0 {
		wire.Fail(w, wrong("after is 0 or more, and limit is 1 to %d", mostEntries))
		return
	}
	f, err := o.Store.Fleet(r.Context())
	out := api.Audit{Fleet: f.Name, Head: f.Head.Seq, Entries: []api.Entry{}}
	if err == nil {
		after := max(0, f.Head.Seq-int64(limit))
		if params.After != nil {
			after = *params.After
		}
		var entries []store.Entry
		entries, err = o.Store.Audit(r.Context(), after, limit)
		for _, e := range entries {
			if err == nil && !json.Valid(e.Diff) { // somebody has changed it
				err = &wire.Failure{Text: fmt.Sprintf("entry %d cannot be read", e.Seq)}
			}
			out.Entries = append(out.Entries, api.Entry{Seq: e.Seq, At: e.At, Who: e.Who, What: e.What, Diff: e.Diff, Previous: e.Previous, Hash: e.Hash})
		}
	}
	o.done(w, out, err)
}
