package demo

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
)

// Measures of the picture, in pixels; a character of a monospace font of 13
// pixels is 7.8 wide.
const (
	lineHeight = 18
	charWidth  = 7.8
	margin     = 16
)

var styleNames = map[string]string{
	bold: "b", faint: "f", underline: "u", green: "g", red: "r", cyan: "c",
}

// drawTerminal makes an SVG of what a terminal showed: the command and its
// output with styles in ANSI escapes.
func drawTerminal(command, output string) []byte {
	lines := strings.Split(strings.TrimRight(output, "\n"), "\n")
	lines = append([]string{"\x1b[36m$ " + command + "\x1b[0m"}, lines...)
	columns := 0
	for _, line := range lines {
		columns = max(columns, len([]rune(styled.ReplaceAllString(line, ""))))
	}
	width := 2*margin + int(float64(columns)*charWidth)
	height := 2*margin + len(lines)*lineHeight

	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d">
<style>
rect{fill:#14181d} text{font:13px ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;fill:#d5dae0;white-space:pre}
.b{font-weight:bold;fill:#fff} .f{fill:#8b949e} .u{text-decoration:underline} .g{fill:#56d364} .r{fill:#ff7b72} .c{fill:#76c7f0}
</style>
<rect width="100%%" height="100%%" rx="8"/>
`, width, height)
	for i, line := range lines {
		if line == "" {
			continue
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" xml:space="preserve">`, margin, margin+(i+1)*lineHeight-5)
		drawLine(&b, line)
		b.WriteString("</text>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// drawLine writes a line as spans, one for each style in it.
func drawLine(b *bytes.Buffer, line string) {
	class := ""
	write := func(text string) {
		if text == "" {
			return
		}
		if class != "" {
			fmt.Fprintf(b, `<tspan class="%s">`, class)
			defer b.WriteString("</tspan>")
		}
		_ = xml.EscapeText(b, []byte(text)) // a bytes.Buffer takes everything
	}
	from := 0
	for _, at := range styled.FindAllStringIndex(line, -1) {
		write(line[from:at[0]])
		class = styleNames[line[at[0]+2:at[1]-1]]
		from = at[1]
	}
	write(line[from:])
}
