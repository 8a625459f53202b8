package check

// effort is how many comparisons of boxes may still be made. It counts what is
// done and never time, so that the same policy always has the same findings.
type effort struct{ left, taken int }

const (
	// maxBoxes bounds what one question may take: beyond it the answer is "cannot
	// tell", which is taken as nothing found.
	maxBoxes = 20_000
	// A policy may take effortAtLeast comparisons and effortPerRule for each of its
	// rules. One question may take a part of what is left, so that something is
	// left for the others, and lastEffort in any case.
	effortAtLeast = 500_000
	effortPerRule = 50
	questionPart  = 16
	lastEffort    = 64
	// likeOne is how many ranges are as quickly compared as one.
	likeOne = 64
)

// question is the effort that one question may take.
func (e *effort) question() int { return max(lastEffort, e.left/questionPart) }

// minus is what of the boxes is in none of the others; ok is false when that
// would take too long.
func (e *effort) minus(boxes, others []box) (rest []box, ok bool) {
	may := e.question()
	return e.cut(boxes, others, &may)
}

// compare takes the effort of some comparisons; false where a question has none
// left.
func (e *effort) compare(n int, may *int) bool {
	*may -= n
	e.left -= n
	e.taken += n
	return *may >= 0
}

// cut is minus within what a question has left.
func (e *effort) cut(boxes, others []box, may *int) (rest []box, ok bool) {
	for i := range others {
		if !e.compare(len(boxes), may) {
			return nil, false
		}
		at := 0
		for at < len(boxes) && !boxes[at].overlaps(&others[i]) {
			at++
		}
		if at == len(boxes) {
			continue
		}
		next := append(make([]box, 0, len(boxes)+2), boxes[:at]...)
		for ; at < len(boxes); at++ {
			if boxes[at].overlaps(&others[i]) {
				if !e.compare(boxes[at].ranges()/likeOne, may) {
					return nil, false
				}
				next = append(next, boxes[at].minus(others[i])...)
			} else {
				next = append(next, boxes[at])
			}
		}
		if boxes = next; len(boxes) > maxBoxes {
			return nil, false
		}
		if len(boxes) == 0 {
			break
		}
	}
	return boxes, true
}

// ranges is how many a box has where it may have many.
func (b *box) ranges() int {
	n := len(b.numbers[service])
	for d := range b.addresses {
		n += size(b, d)
	}
	return n
}
