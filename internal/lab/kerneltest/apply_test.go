package kerneltest

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	changes "sluice/internal/engine/apply"
	"sluice/internal/lab/drafts"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/resolve"
	"sluice/internal/program/compile"
	"sluice/internal/program/optimize"
	"sluice/internal/system/host"
)

// apply brings a policy's text onto a host by the packages that "sluice apply"
// is made of, without its state on disk: compile with the facts of the
// namespace, fill, switch.
func apply(t *testing.T, s *testnet.Namespace, text string) backend.Artifact {
	t.Helper()
	return applyFile(t, s, policyFile(t, text))
}

// policyFile has a policy in it, with "version: 1" where that is not there.
func policyFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if !strings.Contains(text, "version:") {
		text = "version: 1\n" + text
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// factsOf is what a host says of itself.
func factsOf(t *testing.T, s *testnet.Namespace) (facts host.Facts) {
	t.Helper()
	err := s.Do(func() (err error) {
		facts, err = host.Describe(t.Context(), nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

func applyFile(t *testing.T, s *testnet.Namespace, file string) backend.Artifact {
	t.Helper()
	resolved, err := resolveFile(file, factsOf(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return applyResolved(t, s, resolved)
}

func applyResolved(t *testing.T, s *testnet.Namespace, resolved *resolve.Resolved) backend.Artifact {
	t.Helper()
	var artifact backend.Artifact
	err := s.Do(func() error {
		ctx := context.Background()
		program, err := compile.Compile(resolved)
		if err != nil {
			return err
		}
		if err := optimize.Run(program, optimize.Options{Check: true}); err != nil {
			return err
		}
		b := nftables.New()
		if artifact, err = b.Lower(program, capabilities()); err != nil {
			return err
		}
		if err := load(t, s, b, artifact); err != nil {
			return err
		}
		if _, err := changes.EndBanned(program); err != nil {
			return err
		}
		have, err := b.Read(ctx, true)
		if err != nil {
			return err
		}
		differences, err := b.Compare(artifact, have)
		for _, d := range differences {
			t.Errorf("read back, %s %s is %q, meant was %q", d.Kind, d.Name, d.Have, d.Want)
		}
		return err
	})
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	return artifact
}

// load takes the steps from what is there to the artifact. What it reads may go before it
// is taken out: the kernel ends elements by itself. It reads again then, as an apply does.
func load(t *testing.T, s *testnet.Namespace, b backend.Backend, artifact backend.Artifact) error {
	t.Helper()
	for tries := 5; ; tries-- {
		have, err := b.Read(t.Context(), true)
		if err != nil {
			return err
		}
		steps, err := b.Steps(artifact, have)
		if err != nil {
			return err
		}
		out := ""
		for _, step := range steps {
			if out, err = s.RunInput(step.Text(), "nft", "-f", "-"); err != nil {
				t.Logf("step %s: %s\n%s", step.Name, step.Text(), out)
				break
			}
		}
		if err == nil || tries == 0 || !strings.Contains(out, "No such file or directory") {
			return err
		}
	}
}

// someLists serves the one list that drafts name.
type someLists struct{}

func (someLists) Open(url string, _ time.Duration) (io.ReadCloser, string, error) {
	if url != drafts.ListURL {
		return nil, "", errors.New("no such list")
	}
	return io.NopCloser(strings.NewReader("# villains\n192.0.2.66\n2001:db8:bad::/48 # all of it\n")), "villains.txt", nil
}

// capabilities is what this kernel has.
var capabilities = sync.OnceValue(func() backend.Capabilities { return nftables.New().Capabilities(context.Background()) })
