package judge

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/internal/fleet/classes"
)

// kept are answers about classes, by the question and all that they come of: an answer for one
// policy holds for each class that another one leaves as it was.
type kept struct {
	mutex sync.Mutex
	of    map[[sha256.Size]byte]any
	order [][sha256.Size]byte // in which they came
}

// mostKept is how many answers are kept. The largest ones, maps of all countries, have 100 KB.
const mostKept = 600

func (k *kept) get(key [sha256.Size]byte) (answer any, has bool) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	answer, has = k.of[key]
	return answer, has
}

func (k *kept) put(key [sha256.Size]byte, answer any) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if k.of == nil {
		k.of = map[[sha256.Size]byte]any{}
	}
	if _, has := k.of[key]; !has {
		k.order = append(k.order, key)
	}
	k.of[key] = answer
	if len(k.order) > mostKept {
		delete(k.of, k.order[0])
		k.order = slices.Clone(k.order[1:])
	}
}

// keyOf tells answers to a question about a class apart.
func (r *reading) keyOf(c *classes.Class, question string) [sha256.Size]byte {
	content := r.Content(c)
	return sha256.Sum256(fmt.Appendf(nil, "%q %x %s %s", question, content, r.around, r.moment()))
}

// around are the files of sets and the country data that a policy may name.
func (j *Judge) around(files Files) (string, error) {
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") {
			fmt.Fprintf(&all, "%q %s ", name, files[name].Sum)
		}
	}
	data, err := j.sources.Countries()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s%x", &all, data.Sum()), nil
}

// moment is the minute for policies with rules that end, which mean another thing then.
func (r *reading) moment() string {
	if !r.ends {
		return ""
	}
	return time.Now().UTC().Format("2006-01-02 15:04")
}
