package packetbench

import (
	"context"
	"errors"

	"sluice/internal/figures"
)

// Run measures the policy and returns the report, without command and version. An
// error of the context comes with what was measured until then, if anything was.
func Run(ctx context.Context, o Options) (*figures.Report, error) {
	return nil, errors.New("no kind of packet can be measured")
}
