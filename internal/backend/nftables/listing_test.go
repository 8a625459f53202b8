package nftables

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"sluice/internal/base/testgolden"
	"sluice/internal/system/kernel/nft"
)

// TestListing keeps what nft prints of all constructs, so that the reader can
// be tried without rights, and on what other versions print.
func TestListing(t *testing.T) {
	all := mustLower(t, together(t))
	file := filepath.Join("testdata", "listing", "nft-1.0.6.json")
	if testgolden.Update() {
		host := kernelHost(t)
		host.load(t, New(), all)
		var text []byte
		err := host.Do(func() (err error) {
			text, err = nft.ListTerse(context.Background(), "ruleset")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		var lines bytes.Buffer
		var listing struct{ Nftables []json.RawMessage }
		if err := json.Unmarshal(text, &listing); err != nil {
			t.Fatal(err)
		}
		lines.WriteString("{\"nftables\": [\n")
		for i, o := range listing.Nftables {
			if i > 0 {
				lines.WriteString(",\n")
			}
			lines.Write(o)
		}
		lines.WriteString("\n]}\n")
		testgolden.File(t, file, lines.Bytes())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := parse(text, "sluice")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Tree.Chains {
		if c.Base != nil && c.Base.Hook == "ingress" {
			c.Base.Devices = []string{"lo"} // this version leaves them out
		}
	}
	if d := compare(all.Tree, s, nil); len(d) > 0 {
		t.Errorf("read from the file: %s", differences(d))
	}
}
