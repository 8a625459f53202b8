package demo

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// Whatever the demo prints, the picture is well-formed and holds its text.
func TestPictureHoldsTheText(t *testing.T) {
	printed := "\n\x1b[1mWho <gets> in\x1b[0m\n  plain & \x1b[32mok\x1b[0m end\n"
	decoder := xml.NewDecoder(bytes.NewReader(drawTerminal("make demo", printed)))
	var lines []string
	var line strings.Builder
	inText := false
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			inText = inText || token.Name.Local == "text"
		case xml.CharData:
			if inText {
				line.Write(token)
			}
		case xml.EndElement:
			if token.Name.Local == "text" {
				lines = append(lines, line.String())
				line.Reset()
				inText = false
			}
		}
	}
	want := []string{"$ make demo", "Who <gets> in", "  plain & ok end"}
	if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("the picture's text is %q", got)
	}
}
