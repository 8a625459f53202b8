package stories

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"sluice/internal/lab/load"
	"sluice/internal/lab/testnet"
)

// Asking says how a web server is asked. A process of its own asks it, from inside
// the client's namespace, so that no request pays for changing there.
type Asking struct {
	URL            string        `json:"url"`
	Connections    int           `json:"connections"`
	NewConnections bool          `json:"new-connections"`
	Rate           float64       `json:"rate"` // 0: closed loop
	For            time.Duration `json:"for"`
	Requests       uint64        `json:"requests"` // ends it earlier; 0 is no such end
	Timeout        time.Duration `json:"timeout"`
	Every          time.Duration `json:"every"`
}

// Asked is what came of it; see load.Result.
type Asked struct {
	Start     time.Time            `json:"start"`
	Took      time.Duration        `json:"took"`
	Intervals []load.Interval      `json:"intervals"`
	Answered  uint64               `json:"answered"`
	Late      uint64               `json:"late"`
	Failed    map[load.Kind]uint64 `json:"failed"`
	// Connect and Latency are of the whole run; Latency is corrected for coordinated
	// omission.
	Connect load.Percentiles `json:"connect"`
	Latency load.Percentiles `json:"latency"`
}

// Rate is answered requests per second.
func (a *Asked) Rate() float64 { return float64(a.Answered-a.Late) / a.Took.Seconds() }

// AskChild is the body of the process that asks: Asking as JSON on in, Asked on out.
func AskChild(ctx context.Context, in io.Reader, out io.Writer) error {
	var a Asking
	if err := json.NewDecoder(in).Decode(&a); err != nil {
		return fmt.Errorf("read what is to be asked: %w", err)
	}
	r, err := load.Run(ctx, load.Options{
		URL: a.URL, Connections: a.Connections, NewConnections: a.NewConnections, Rate: a.Rate,
		Header: []string{"Accept-Encoding: gzip"}, // as every browser asks
		For:    a.For, Requests: a.Requests, Timeout: a.Timeout, Every: a.Every,
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(Asked{
		Start: r.Start, Took: r.Took, Intervals: r.Intervals, Answered: r.Answered, Late: r.Late,
		Failed: r.Errors, Connect: load.PercentilesOf(r.Connect), Latency: load.PercentilesOf(r.Latency),
	})
}

// ask asks from inside a namespace.
func (s *Stage) ask(ctx context.Context, from *testnet.Namespace, a Asking) (*Asked, error) {
	question, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, s.Lab, "story", "ask")
	if s.report.Machine.Counted && a.Requests > 0 {
		// What the load itself does at times of its own choice would be counted.
		cmd.Env = append(os.Environ(), "GOGC=off")
	}
	cmd.Stdin = bytes.NewReader(question)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	if err := from.StartCommand(cmd); err != nil {
		return nil, fmt.Errorf("start the load in %s: %w", from.Label(), err)
	}
	if err := cmd.Wait(); err != nil {
		return nil, errors.Join(ctx.Err(), fmt.Errorf("ask %s from %s: %w\n%s", a.URL, from.Label(), err, failed.String()))
	}
	asked := &Asked{}
	if err := json.Unmarshal(out.Bytes(), asked); err != nil {
		return nil, fmt.Errorf("read what the load has found: %w", err)
	}
	return asked, nil
}
