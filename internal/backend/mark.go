package backend

import "context"

// MarkPrefix begins every mark. Behind it are letters, digits and underscores.
const MarkPrefix = "generation_"

// Marker keeps a mark in the kernel beside what is loaded, so that the kernel itself
// says what it holds, whatever happens to the process and the disk. All of it is in the
// network namespace of the calling thread.
type Marker interface {
	// Mark reads the mark, "" where there is none, and whether Confirm was called
	// since it was set.
	Mark(ctx context.Context) (mark string, confirmed bool, err error)
	// Marked is the steps such that the last one that switches sets the mark too, in
	// the same transaction; where none does, one of its own before what is edited and
	// swept. The mark takes the place of any other; "" is none.
	Marked(steps []Step, mark string) []Step
	// Confirm notes beside the mark that what it is of is confirmed, until the next
	// mark or boot.
	Confirm(ctx context.Context) error
	// Fingerprint is that of what the kernel holds at this moment.
	Fingerprint() (Fingerprint, error)
	// Connect keeps open what the kernel is asked and told by, until end is called.
	Connect() (end func())
}

// Fingerprint tells whether anybody has written to what a backend works on: its own
// rules and all that its kernel facility keeps with them.
type Fingerprint struct {
	// Number is raised by one with every transaction of anybody that changes
	// something. It comes round.
	Number uint32 `json:"number"`
	// Own is how many transactions this process has made.
	Own uint64 `json:"-"`
}

// Alone says whether nobody but this process has written since an earlier fingerprint
// that it took.
func (f Fingerprint) Alone(since Fingerprint) bool {
	return f.Number-uint32(f.Own-since.Own) == since.Number //nolint:gosec // both count round
}
