package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/base/sorting"
	"sluice/internal/language/policy"
)

// Severity says how bad a finding is.
type Severity string

// Severities, the worst first.
const (
	Error   Severity = "error"   // the policy is not applied
	Warning Severity = "warning" // hardly what was meant
	Remark  Severity = "remark"  // worth knowing
)

func (s Severity) rank() int { return slices.Index([]Severity{Error, Warning, Remark}, s) }

// Finding is one thing that was found, and where.
type Finding struct {
	Code     Code
	Severity Severity
	Pos      policy.Pos
	Message  string        // lower case, no full stop, one line
	Hint     string        // what to do; may be empty
	Line     string        // the source line; may be empty
	Remedy   policy.Remedy // in place of Hint, which a command makes of it; may be empty
	Related  []Related
	Witness  *Witness // a packet that shows it; nil where none makes it clearer
}

// Witness is a packet and the hook that it is about.
type Witness struct {
	Hook   policy.Hook
	Packet packet.Packet
}

// Related is another place that has to do with a finding.
type Related struct {
	Pos  policy.Pos
	Text string // the rule or name that is there
}

// Code names a kind of finding; it does not change between versions.
type Code string

// Codes.
const (
	NeverMatches      Code = "never-matches"      // no packet fits all words of a rule
	EndedRule         Code = "ended-rule"         // the end of a rule is past
	HiddenRule        Code = "hidden-rule"        // earlier rules decide all packets of a rule
	AlwaysPasses      Code = "always-passes"      // what a rule is about passes before any rule
	BannedRule        Code = "banned-rule"        // all that a rule is about is banned
	EmptySet          Code = "empty-set"          // a set holds no address
	OneFamily         Code = "one-family"         // a set of one family leaves the other one open
	BypassNAT         Code = "bypass-nat"         // what is rewritten is not tracked
	BypassEphemeral   Code = "bypass-ephemeral"   // a bypass over ports of the host's own connections
	BypassConnections Code = "bypass-connections" // connections are counted that are not tracked
	BypassLimit       Code = "bypass-limit"       // a limit counts packets, not flows
	NoWayBack         Code = "no-way-back"        // untracked traffic whose answers are not allowed
	BridgePort        Code = "bridge-port"        // an interface that rules never see
	UnknownInterface  Code = "unknown-interface"  // an interface that the host does not have
	ForeignAddress    Code = "foreign-address"    // an address that is not this host's, where only those occur
	MasqueradeIPv6    Code = "masquerade-ipv6"    // a masquerade that covers IPv6 too
	NeverBanned       Code = "never-banned"       // a ban that never-ban undoes
	HostNeeds         Code = "host-needs"         // output refuses what the host itself has to send
	BanOwn            Code = "ban-own"            // a ban of the host's own addresses
	BanManagement     Code = "ban-management"     // a ban of who is logged in
	BanResolver       Code = "ban-resolver"       // a ban of a name server that the host asks
	UnprovenBan       Code = "unproven-ban"       // a limit bans by packets whose source nothing proves
	UnprovenPlaces    Code = "unproven-places"    // connections of a source are counted that it need not have begun
)

// Codes of what lint alone looks for.
const (
	HiddenPart       Code = "hidden-part"       // earlier rules decide a part of a rule
	RedundantRule    Code = "redundant-rule"    // without the rule nothing changes
	RedundantElement Code = "redundant-element" // an entry of a list that changes nothing
	UnusedName       Code = "unused-name"       // a set, zone or service that nothing uses
	BanNetwork       Code = "ban-network"       // a ban of a network that the host is in
	BanServer        Code = "ban-server"        // a ban of a mirror or time server that the host asks
	BanRouter        Code = "ban-router"        // a ban of the host's router, and of its ICMP errors
	BanCountries     Code = "ban-countries"     // a ban by country, which holds for answers and ICMP errors too
	ForgedBan        Code = "forged-ban"        // a limit that bans whom others name as source
	RepliesCut       Code = "replies-cut"       // answers to the host's own requests that rules decide
	RequestsCut      Code = "requests-cut"      // output refuses what the host asks by itself
	BypassUnused     Code = "bypass-unused"     // a bypass of what no rule allows
	OpenManagement   Code = "open-management"   // a port of management that is open to everybody
	DefaultAllow     Code = "default-allow"     // a section that lets through what nobody thought of
	NotPoliced       Code = "not-policed"       // a section that is left out where packets pass
	IPv6Open         Code = "ipv6-open"         // a rule that closes IPv4 alone
	EveryIPv4        Code = "every-ipv4"        // "everybody" of one family
	PublishedClosed  Code = "published-closed"  // a published port that no rule lets through
	RedirectClosed   Code = "redirect-closed"   // a redirect that no rule lets through
	InputPublished   Code = "input-published"   // a rule of input for what another tool leads elsewhere
	OtherFirewall    Code = "other-firewall"    // another firewall that starts with the host
	NoClamp          Code = "no-clamp"          // large packets into a small link, and nothing tells TCP
	LintComment      Code = "lint-comment"      // a comment that allows what it cannot
)

// String is the finding as policy errors are printed: position, severity unless
// it is an error, message, the source line with a marker, the hint.
func (f Finding) String() string {
	e := policy.Error{Pos: f.Pos, Message: f.Message, Hint: f.Hint, Line: f.Line}
	if f.Severity != Error {
		e.Message = string(f.Severity) + ": " + f.Message
	}
	return e.Error()
}

// MarshalJSON writes positions flat, as editors want them.
func (f Finding) MarshalJSON() ([]byte, error) {
	type place struct {
		File   string `json:"file"`
		Line   int    `json:"line,omitempty"`
		Column int    `json:"column,omitempty"`
	}
	type related struct {
		place
		Text string `json:"text"`
	}
	out := struct {
		Code     Code     `json:"code"`
		Severity Severity `json:"severity"`
		place
		Message string       `json:"message"`
		Why     string       `json:"why,omitempty"`
		Hint    string       `json:"hint,omitempty"`
		Related []related    `json:"related,omitempty"`
		Witness *witnessJSON `json:"witness,omitempty"`
	}{f.Code, f.Severity, place(f.Pos), f.Message, "", f.Hint, nil, witnessOf(f.Witness)}
	if e := explanationOf(f.Code); e != nil {
		out.Why = e.Why
	}
	for _, r := range f.Related {
		out.Related = append(out.Related, related{place(r.Pos), r.Text})
	}
	return json.Marshal(out)
}

// witnessJSON is a packet with its hook, and in words.
type witnessJSON struct {
	Hook policy.Hook `json:"hook"`
	packet.Fields
	State packet.State `json:"state,omitempty"`
	Text  string       `json:"text"`
}

func witnessOf(w *Witness) *witnessJSON {
	if w == nil {
		return nil
	}
	return &witnessJSON{w.Hook, w.Packet.Fields(), w.Packet.State, packetText(&w.Packet)}
}

// Text is the packet in words.
func (w *Witness) Text() string { return packetText(&w.Packet) }

// Errors is the findings that keep a policy from being applied, as one error;
// nil when there are none.
func Errors(findings []Finding) error {
	var errs policy.Errors
	for _, f := range findings {
		if f.Severity == Error {
			errs = append(errs, &policy.Error{Pos: f.Pos, Message: f.Message, Hint: f.Hint, Line: f.Line, Remedy: f.Remedy})
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return errs
}

// order sorts findings by place, the files in the order in which the policy
// names them, then by severity, and drops doubles.
func order(p *policy.Policy, findings []Finding) []Finding {
	for i := range findings {
		f := &findings[i]
		// Whom an included file must not stop it does not stop by a rule that others hide.
		if f.Code != HiddenRule && f.Code != BannedRule {
			continue
		}
		// Nor does one part of a fleet stop another one.
		apart := p.Fleet != nil && (len(f.Related) == 0 || slices.ContainsFunc(f.Related, func(r Related) bool { return r.Pos.File != f.Pos.File }))
		if apart {
			f.Message += ", on " + p.Fleet.String()
		}
		if apart || p.Scoped(f.Pos.File) {
			f.Severity = Warning
		}
	}
	files := map[string]int{p.File: 1}
	for i, name := range p.Includes {
		files[name] = i + 2
	}
	sorting.StableBy(findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(files[a.Pos.File], files[b.Pos.File]),
			cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Pos.Column, b.Pos.Column),
			cmp.Compare(a.Severity.rank(), b.Severity.rank()),
			cmp.Compare(a.Code, b.Code),
		)
	})
	return slices.CompactFunc(findings, func(a, b Finding) bool {
		return a.Code == b.Code && a.Pos == b.Pos && a.Message == b.Message
	})
}

// place names a position for a message whose own is at: by line alone in the
// same file.
func place(pos, at policy.Pos) string {
	if pos.File == at.File {
		return fmt.Sprintf("line %d", pos.Line)
	}
	return fmt.Sprintf("%s:%d", pos.File, pos.Line)
}
