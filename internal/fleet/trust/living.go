package trust

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"sluice/internal/base/addrset"
	"sluice/internal/base/selector"
)

// KindBans are bans and allows, see [Bans].
const KindBans = "bans"

// Kinds of a [Living].
const (
	LivingBan      = "ban"
	LivingUnban    = "unban"
	LivingAllow    = "allow"
	LivingDisallow = "disallow"
)

// What a [Living] may be at most.
const (
	MaxBans      = 512 << 10             // bytes of a payload
	MaxLivingFor = 3650 * 24 * time.Hour // from Made to Expires
	maxReason    = 200                   // bytes, as of a host's own bans
	maxLivingWho = 300                   // bytes
	maxService   = 256                   // bytes
	livingID     = 16                    // digits
	lastYear     = 9999                  // of a time, as RFC 3339 has it
	firstYear    = 1970                  // of a time
	noSeq        = math.MaxInt64         // that no entry has
)

// Bans is the payload of [KindBans]: a part of the log of bans and allows, or of what it
// comes to. One signature is for all hosts: a host asks the selector of each entry of its
// own labels. The number of the envelope is that of the last entry, or of the one before
// where there is none.
//
// An entry of the log takes the place of what has its ID. A part of the log is each entry
// after After: a host that is not at After has a gap. What is Whole is all that holds at the
// number of the envelope among the IDs behind From, up to To, "" being no bound: what a host
// has between them of this incarnation, and is not there, is lifted.
type Bans struct {
	After   int64     `json:"after,omitempty"`
	Whole   bool      `json:"whole,omitempty"`
	From    string    `json:"from,omitempty"`
	To      string    `json:"to,omitempty"`
	Now     time.Time `json:"now"` // by the clock of Made and Expires, as it was signed
	Entries []Living  `json:"entries,omitempty"`
}

// Living is one entry. Times are those of the controllers' database.
type Living struct {
	Seq     int64     `json:"seq"`
	ID      string    `json:"id"` // see [LivingID]
	Kind    string    `json:"kind"`
	What    string    `json:"what"`              // an address, a prefix or a range, as addrset.Range writes it
	Service string    `json:"service,omitempty"` // of an allow; none: all
	Hosts   string    `json:"hosts,omitempty"`   // a selector, as it writes itself; none: all hosts
	Reason  string    `json:"reason,omitempty"`
	Who     string    `json:"who,omitempty"`
	Made    time.Time `json:"made"`
	Expires time.Time `json:"expires"`
}

// LivingID is the ID of what a ban or an allow is: a second one of the same, for the same
// hosts, takes the place of the first. What lifts it has its ID.
func LivingID(kind, what, service, hosts string) string {
	switch kind {
	case LivingUnban:
		kind = LivingBan
	case LivingDisallow:
		kind = LivingAllow
	}
	sum := sha256.Sum256([]byte(kind + "\x00" + what + "\x00" + service + "\x00" + hosts))
	return hex.EncodeToString(sum[:livingID/2])
}

const theBans = "the " + KindBans

// ReadBans reads the payload that Host.Live gave of an envelope of this number. Errors are ErrMalformed or
// ErrTooLarge.
func ReadBans(payload []byte, seq int64) (*Bans, error) {
	if err := sized(theBans, payload, MaxBans); err != nil {
		return nil, err
	}
	b := &Bans{}
	if err := strictly(theBans, payload, b); err != nil {
		return nil, err
	}
	if err := b.check(seq); err != nil {
		return nil, fmt.Errorf("%s are %w: %w", theBans, ErrMalformed, err)
	}
	return b, nil
}

func (b *Bans) check(seq int64) error {
	switch {
	case !inYears(b.Now):
		return fmt.Errorf("now is %v", b.Now)
	case seq < 0 || seq == noSeq || b.After < 0:
		return fmt.Errorf("there is no number %d after %d", seq, b.After)
	case b.Whole && b.After != 0, !b.Whole && (b.From != "" || b.To != ""):
		return fmt.Errorf("they are the whole, or come after a number")
	case b.To != "" && b.To <= b.From:
		return fmt.Errorf("they reach from %.40q to %.40q", b.From, b.To)
	case !b.Whole && int64(len(b.Entries)) != seq-b.After:
		return fmt.Errorf("%d entries are not those from %d to %d", len(b.Entries), b.After, seq)
	}
	last := b.From
	for i, e := range b.Entries {
		if err := e.Check(); err != nil {
			return fmt.Errorf("entry %d: %w", i+1, err)
		}
		switch lifts := e.Kind == LivingUnban || e.Kind == LivingDisallow; {
		case !b.Whole && e.Seq != b.After+int64(i)+1:
			return fmt.Errorf("entry %d has the number %d", i+1, e.Seq)
		case b.Whole && (lifts || e.Seq < 1 || e.Seq > seq || e.ID <= last || b.To != "" && e.ID > b.To):
			return fmt.Errorf("entry %d, %s %s of number %d, is none of the whole", i+1, e.Kind, e.ID, e.Seq)
		}
		last = e.ID
	}
	return nil
}

// Check says why no host would read an entry, whatever its number.
func (e *Living) Check() error {
	switch e.Kind {
	case LivingBan, LivingUnban, LivingAllow, LivingDisallow:
	default:
		return fmt.Errorf("there is no kind %.40q", e.Kind)
	}
	what, err := addrset.ParseRange(e.What)
	if err != nil || what.String() != e.What {
		return fmt.Errorf("%.80q is not an address, prefix or range in canonical form", e.What)
	}
	if e.Hosts != "" {
		if s, err := selector.Parse(e.Hosts); err != nil || s.String() != e.Hosts {
			return fmt.Errorf("%.80q is not a selector in canonical form", e.Hosts)
		}
	}
	if bans := e.Kind == LivingBan || e.Kind == LivingUnban; bans && e.Service != "" {
		return fmt.Errorf("%s of the service %.40q", e.Kind, e.Service)
	}
	if err := cmp.Or(plain("service", e.Service, maxService), CheckReason(e.Reason), plain("who", e.Who, maxLivingWho)); err != nil {
		return err
	}
	if id := LivingID(e.Kind, e.What, e.Service, e.Hosts); e.ID != id {
		return fmt.Errorf("%s of %s has the ID %.40q, not %s", e.Kind, e.What, e.ID, id)
	}
	if !inYears(e.Made) || !inYears(e.Expires) || e.Expires.Before(e.Made) || e.Expires.Sub(e.Made) > MaxLivingFor {
		return fmt.Errorf("%s holds from %v to %v", e.What, e.Made, e.Expires)
	}
	return nil
}

// CheckReason says why no entry can have a reason.
func CheckReason(reason string) error { return plain("reason", reason, maxReason) }

func plain(name, text string, most int) error {
	if len(text) > most || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return fmt.Errorf("the %s %.40q has %d bytes, and may have %d, without control characters", name, text, len(text), most)
	}
	return nil
}

func inYears(t time.Time) bool {
	year := t.UTC().Year()
	return firstYear <= year && year <= lastYear
}
