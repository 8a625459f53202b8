package backend

import (
	"context"
	"encoding/json"
	"slices"

	"sluice/internal/base/cache"
	"sluice/internal/system/host"
)

// Prober is a backend that asks a host what it can do.
type Prober interface {
	// Capabilities tries every feature that the backend may want. It leaves nothing
	// behind. What may not be tried here cannot be told.
	Capabilities(ctx context.Context) Capabilities
	// Questions says what the answers are good for.
	Questions() Questions
}

// Questions is what a prober asks. Answers are the same while the questions, what
// puts them, and the kernel are.
type Questions struct {
	Features []Feature
	Text     string
	Files    []string // programs and libraries that put them
}

// capabilitiesKind is the name of capabilities in the cache.
const capabilitiesKind = "capabilities"

// Remembered is p.Capabilities, asked once for each kernel, set of modules, and text
// and files of the questions: a module that the kernel looks for in vain takes 20 ms
// each time.
func Remembered(ctx context.Context, c cache.Cache, p Prober) Capabilities {
	asked := p.Questions()
	if data, ok := c.Get(capabilitiesKind, asked.key()); ok {
		var can Capabilities
		if json.Unmarshal(data, &can) == nil && asked.answered(can) {
			return can
		}
	}
	can := p.Capabilities(ctx)
	if asked.answered(can) {
		if data, err := json.Marshal(can); err == nil {
			// Asking may have loaded modules, so the key is another now.
			c.Put(capabilitiesKind, asked.key(), data)
		}
	}
	return can
}

func (q Questions) key() string { return q.Text + host.Answers(q.Files) }

// answered says whether every question has its answer.
func (q Questions) answered(can Capabilities) bool {
	return !slices.ContainsFunc(q.Features, func(f Feature) bool { return can[f] != Yes && can[f] != No })
}
