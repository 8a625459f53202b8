package compile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"sluice/internal/language/policy"
)

// id gives a rule a name that holds over reloads: it comes from what the rule
// says and not from where it stands, so that its counter goes on when rules
// are put before it. The second rule of the same words has a number behind.
func (c *compiler) id(section, text string) string {
	sum := sha256.Sum256([]byte(section + "\x00" + text))
	id := section + "_" + hex.EncodeToString(sum[:5])
	c.ids[id]++
	if n := c.ids[id]; n > 1 {
		id = fmt.Sprintf("%s_%d", id, n)
	}
	return id
}

// nameRules gives every rule of a section its id, in the order of the section.
func (c *compiler) nameRules(s *policy.Section) {
	if s == nil {
		return
	}
	for _, r := range s.Rules {
		of := string(s.Hook)
		if r.Exception {
			of += "_exception"
		}
		c.ruleIDs[r] = c.id(of, r.Text)
	}
}

// identifier joins a kind and names to the id of a set. Names of a policy have
// no full stop, so that no id is ever one of them or one of another kind.
func identifier(parts ...string) string {
	text := strings.Join(parts, ".")
	if len(text) > 60 {
		sum := sha256.Sum256([]byte(text))
		text = text[:48] + "." + hex.EncodeToString(sum[:5])
	}
	return text
}
