package policy

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"sluice/internal/base/selector"
	"sluice/internal/language/source"
)

// Access is what somebody may do at the controller of a fleet.
type Access struct {
	Pos   Pos
	Who   string             // oidc:GROUP or user:NAME
	Role  string             // viewer, operator or admin
	Hosts *selector.Selector `json:"-"` // nil: all
}

const whoPattern = `^(oidc|user):[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]{0,198}[^\s\x00-\x1f\x7f])?$`

var whoSyntax = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(whoPattern) })

// IsWho says whether access of a fleet may name somebody so.
func IsWho(text string) bool { return whoSyntax().MatchString(text) }

// WhoKey is the same for what names the same: the case of letters of ASCII means nothing, but in
// a provider's own name for somebody. Other letters are told apart.
func WhoKey(who string) string {
	if strings.HasPrefix(who, "user:sub/") {
		return who
	}
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, who)
}

// roles are all, the least first.
var roles = []string{"viewer", "operator", "admin"}

// Approvals are what may want the approval of a second person, as the interface of controllers
// names it.
var Approvals = []string{"publish", "roll-out", "ban", "unban", "allow", "disallow", "guest", "list", "revoke", "labels", "token", "access"}

// approve reads what wants the approval of a second person.
func (f *file) approve(e source.Entry) (all []string) {
	for _, n := range f.List(e.Value, "approve") {
		name, fine := f.Text(n, "approve")
		switch {
		case !fine:
		case !slices.Contains(Approvals, name):
			f.fail(f.At(n), "", "approve must be a list of %s, not %s%s", strings.Join(Approvals, ", "), source.Quote(name), source.DidYouMean(name, Approvals))
		case slices.Contains(all, name):
			f.fail(f.At(n), "remove one", "%s is listed twice in approve", name)
		default:
			all = append(all, name)
		}
	}
	return all
}

// access reads who may do what at the controller.
func (f *file) access(e source.Entry) (all []Access) {
	for _, n := range f.List(e.Value, "access") {
		before := len(f.errs)
		a := Access{Pos: f.At(n)}
		for _, k := range f.Known(n, grammar.Of("grant")) {
			switch k.Name {
			case "who":
				a.Who, _ = f.Text(k.Value, "who")
				if a.Who != "" && !IsWho(a.Who) {
					f.fail(f.At(k.Value), "write oidc:GROUP, or user:NAME", "who must be oidc:GROUP or user:NAME, not %s", source.Quote(a.Who))
				}
			case "role":
				a.Role, _ = f.Text(k.Value, "role")
				if a.Role != "" && !slices.Contains(roles, a.Role) {
					f.fail(f.At(k.Value), "", "role must be viewer, operator or admin, not %s%s", source.Quote(a.Role), source.DidYouMean(a.Role, roles))
				}
			case "hosts":
				a.Hosts = f.selector(k)
			}
		}
		if len(f.errs) > before || f.lenient {
			continue
		}
		switch {
		case a.Who == "":
			f.fail(a.Pos, "write who: oidc:GROUP, or user:NAME", "access without who")
		case a.Role == "":
			f.fail(a.Pos, "write role: viewer, operator or admin", "access without role")
		default:
			all = append(all, a)
		}
	}
	return all
}
