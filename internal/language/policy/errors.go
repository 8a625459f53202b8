package policy

import "sluice/internal/language/source"

type (
	// Pos is where something was written.
	Pos = source.Pos
	// Error is one thing that is wrong with a policy, and where.
	Error = source.Error
	// Errors is everything that is wrong with a policy, ordered by place.
	Errors = source.Errors //nolint:errname // the name of a list
	// Remedy names what fixes an error or a finding by means outside of the policy.
	Remedy = source.Remedy
)

// Remedies.
const (
	SeeCountries    Remedy = "list the countries that there are data for"
	RenewCountries  Remedy = "update the country data"
	ReadCountries   Remedy = "get permission to read the country data"
	SeeFindingCodes Remedy = "list the codes of findings"
	GiveLabels      Remedy = "name the host that it is for"
	NameOrGiveFacts Remedy = "name the interface, or provide the facts of the host"
)

// Errorf makes an error at a place of p, with the source line in it. The hint
// may be empty. It is for the stages that follow, so that their errors look as
// those of the language do.
func (p *Policy) Errorf(pos Pos, hint, format string, args ...any) *Error {
	return source.NewError(p.lines[pos.File], pos, hint, format, args...)
}

// SortErrors brings errors into the order of the policy's files, lines and
// columns and drops doubles.
func (p *Policy) SortErrors(e Errors) Errors {
	return e.Sorted(append([]string{p.File}, p.Includes...))
}
