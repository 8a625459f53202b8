package controller

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// accessCut is what stands where access stood.
const accessCut = "# access: told to whoever has a role for all hosts"

// withoutAccess is the text of a fleet's file without who may do what at the controller, each other
// line where it was.
func withoutAccess(text string) string {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil || len(document.Content) != 1 || document.Content[0].Style&yaml.FlowStyle != 0 {
		return accessCut + ", with the rest of this file\n" // which is not in lines
	}
	keys := document.Content[0].Content
	lines := strings.SplitAfter(text, "\n")
	for i := 0; i < len(keys); i += 2 {
		if keys[i].Value != "access" {
			continue
		}
		end := len(lines)
		if i+2 < len(keys) {
			end = keys[i+2].Line - 1
		}
		for at := keys[i].Line - 1; at < end; at++ {
			lines[at] = "\n"
		}
		lines[keys[i].Line-1] = accessCut + "\n"
	}
	return strings.Join(lines, "")
}
