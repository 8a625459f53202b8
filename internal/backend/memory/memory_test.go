package memory_test

import (
	"context"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/backend/conformance"
	"sluice/internal/backend/memory"
)

// process is the host of what is in its memory.
type process struct{}

func (process) Do(f func() error) error   { return f() }
func (process) Take(s backend.Step) error { return s.Take(context.Background()) }

func TestConformance(t *testing.T) {
	conformance.Run(t, memory.New(), nil, process{}, "limits and logs", "router")
}
