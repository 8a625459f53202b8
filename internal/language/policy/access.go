package policy

import (
	"regexp"
	"slices"
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

// roles are all, the least first.
var roles = []string{"viewer", "operator", "admin"}

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
					f.fail(f.At(k.Value), "write oidc:GROUP, or user:NAME", "who is %s", source.Quote(a.Who))
				}
			case "role":
				a.Role, _ = f.Text(k.Value, "role")
				if a.Role != "" && !slices.Contains(roles, a.Role) {
					f.fail(f.At(k.Value), "", "role must be viewer, operator or admin, this is %s%s", source.Quote(a.Role), source.DidYouMean(a.Role, roles))
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
			f.fail(a.Pos, "write who: oidc:GROUP, or user:NAME", "an access of nobody")
		case a.Role == "":
			f.fail(a.Pos, "write role: viewer, operator or admin", "an access without a role")
		default:
			all = append(all, a)
		}
	}
	return all
}
