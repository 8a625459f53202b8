package judge

import (
	"context"
	"slices"
	"sync"
)

// asked are the last questions about all classes, which are likely to be asked of the next policy
// too.
type asked struct {
	mutex sync.Mutex
	last  []func(ctx context.Context, a *Asked)
	names []string
}

// mostAsked is how many of them are remembered.
const mostAsked = 8

// remember keeps a question by its name.
func (q *asked) remember(name string, ask func(ctx context.Context, a *Asked)) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if i := slices.Index(q.names, name); i >= 0 {
		q.names, q.last = slices.Delete(q.names, i, i+1), slices.Delete(q.last, i, i+1)
	}
	q.names, q.last = append(q.names, name), append(q.last, ask)
	if len(q.names) > mostAsked {
		q.names, q.last = slices.Clone(q.names[1:]), slices.Clone(q.last[1:])
	}
}

// Fill answers the maps and matrices that people have asked for last for another policy, so that
// they wait for none when they ask about that. Each question has a turn of its own, behind those of
// people; it ends where a newer policy comes, and nothing is done where nobody has asked.
func (j *Judge) Fill(ctx context.Context, a *Asked, newer func() bool) {
	j.asked.mutex.Lock()
	all := slices.Clone(j.asked.last)
	j.asked.mutex.Unlock()
	for _, ask := range all {
		if newer() {
			return
		}
		turn, leave, err := j.Turn(ctx, "")
		if err != nil {
			return
		}
		ask(turn, a)
		leave()
	}
}
