package trust

import (
	"errors"
	"fmt"
	"time"

	"github.com/theupdateframework/go-tuf/v2/metadata"

	"sluice/internal/base/english"
)

// Why something is not believed. Each comes wrapped in a sentence that says what it is
// about.
var (
	ErrMalformed    = errors.New("malformed")
	ErrTooLarge     = errors.New("too large")
	ErrUnsigned     = errors.New("not signed by a key of this fleet")
	ErrThreshold    = errors.New("not signed by enough keys")
	ErrBelowFloor   = errors.New("below the signed floor")
	ErrExpired      = errors.New("expired")
	ErrForeignFleet = errors.New("of another fleet")
	ErrRolledBack   = errors.New("older than what was seen before")
	ErrHash         = errors.New("not what was signed")
	ErrLevel        = errors.New("written for a newer Sluice")
	ErrWrongHost    = errors.New("for another host")
)

func expired(what string, at, now time.Time) error {
	return fmt.Errorf("%s: %w on %s (the clock here says %s)", what, ErrExpired, english.Moment(at), english.Moment(now))
}

func foreign(what, fleet, ours string) error {
	return fmt.Errorf("%s is %w: %q, and this is %q", what, ErrForeignFleet, fleet, ours)
}

// told puts an error of go-tuf into the words of this package; nil stays nil.
func told(what string, err error) error {
	if err == nil {
		return nil
	}
	var (
		version  *metadata.ErrBadVersionNumber
		unsigned *metadata.ErrUnsignedMetadata
		hash     *metadata.ErrLengthOrHashMismatch
		old      *metadata.ErrExpiredMetadata
		why      = ErrMalformed
	)
	switch {
	case errors.As(err, &version):
		why = ErrRolledBack
	case errors.As(err, &unsigned):
		why = ErrUnsigned
	case errors.As(err, &hash):
		why = ErrHash
	case errors.As(err, &old):
		why = ErrExpired
	}
	return fmt.Errorf("%s is %w: %s", what, why, err.Error())
}
