package check

import (
	"slices"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/base/nearest"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
)

// interfaces finds interfaces in zones that the host does not have, and ports
// of a bridge: routing, and with it every rule, sees the bridge.
func (c *checker) interfaces() {
	if !c.facts.Known {
		return
	}
	for _, z := range c.policy.Zones {
		for _, word := range z.Interfaces {
			if word.Text != resolve.DefaultRoute {
				c.zoneInterface(z.Name, word)
			}
		}
	}
	for _, h := range c.policy.Held {
		if h.Interface.Pos.Line == 0 {
			h.Interface.Pos = h.Pos
		}
		c.zoneInterface(h.Guest, h.Interface)
	}
}

// zoneInterface looks at an interface that a zone or a guest has.
func (c *checker) zoneInterface(of string, word policy.Word) {
	var names, ports, bridges []string
	for _, i := range c.facts.Interfaces {
		names = append(names, i.Name)
		if i.Master != "" && resolve.MatchInterface(word.Text, i.Name) {
			ports = append(ports, i.Name)
			bridges = append(bridges, i.Master)
		}
	}
	fits := slices.ContainsFunc(names, func(n string) bool { return resolve.MatchInterface(word.Text, n) })
	slices.Sort(bridges)
	bridges = slices.Compact(bridges)
	wild := strings.HasSuffix(word.Text, "*")
	switch {
	case !fits && !wild:
		hint := ""
		if n := nearest.Of(word.Text, names); n != "" {
			hint = "did you mean " + quoted(n) + "?"
		}
		c.report(UnknownInterface, Warning, word.Pos, hint, "this host has no interface %q now", word.Text)
	case len(ports) > 0 && !wild:
		c.report(BridgePort, Error, word.Pos, "name the bridge instead: "+bridges[0],
			"interface %q is a port of bridge %q: rules see the bridge, never its ports", word.Text, bridges[0])
	case len(ports) > 0:
		c.report(BridgePort, Warning, word.Pos, "name the bridge too if you mean it",
			"%s of zone %q matches %s, ports of bridge %s: rules see the bridge, never its ports",
			quoted(word.Text), of, english.List(ports), english.List(bridges))
	}
}
