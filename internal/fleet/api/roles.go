package api

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"
)

// Roles are all, the least first: each has what the ones before it have.
var Roles = []Role{Viewer, Operator, Admin}

// Includes says whether who has the role may do what asks for another one. What is not a role
// includes none and is included in none.
func (r Role) Includes(asked Role) bool {
	has, wants := slices.Index(Roles, r), slices.Index(Roles, asked)
	return wants >= 0 && has >= wants
}

// Operation is what a caller may ask for.
type Operation struct {
	ID      string
	Pattern string         // as http.ServeMux has it: the method, a blank, the path
	Role    Role           // the least that may
	Within  bool           // a role for the hosts of a selector is enough: the answer is of those
	Longest map[string]int // of parameters of the query, in characters
	Times   []string       // parameters of the query that are times
	Approve string         // as approve of fleet.yaml names it; "": it needs no second person
}

// AgentPattern is where operations of a host's own agent are asked for. What is behind agent/ may
// have any number of segments, which a document of OpenAPI cannot say.
const AgentPattern = "/api/v1/hosts/{host}/agent/{path...}"

//go:embed openapi.yaml
var document []byte

// Operations are those of the document, by pattern.
var Operations = sync.OnceValue(func() map[string]Operation {
	all, err := operations(document)
	if err != nil {
		panic(err) // of the program's own text
	}
	return all
})

func operations(text []byte) (map[string]Operation, error) {
	var is struct {
		Paths map[string]map[string]struct {
			ID         string `yaml:"operationId"`
			Role       Role   `yaml:"x-sluice-role"`
			Hosts      string `yaml:"x-sluice-hosts"`
			Approve    string `yaml:"x-sluice-approve"`
			Parameters []struct {
				Name, In string
				Schema   struct {
					MaxLength int `yaml:"maxLength"`
					Format    string
				}
			}
		} `yaml:"paths"`
	}
	if err := yaml.Unmarshal(text, &is); err != nil {
		return nil, err
	}
	all := map[string]Operation{}
	for path, methods := range is.Paths {
		for method, o := range methods {
			if !slices.Contains(Roles, o.Role) {
				return nil, fmt.Errorf("openapi.yaml: %s of %s says by no x-sluice-role who may ask it", method, path)
			}
			if strings.HasSuffix(path, "/agent/{path}") {
				path = AgentPattern
			}
			pattern := strings.ToUpper(method) + " " + path
			longest, times := map[string]int{}, []string(nil)
			for _, p := range o.Parameters {
				if p.In == "query" && p.Schema.MaxLength > 0 {
					longest[p.Name] = p.Schema.MaxLength
				}
				if p.In == "query" && p.Schema.Format == "date-time" {
					times = append(times, p.Name)
				}
			}
			all[pattern] = Operation{ID: o.ID, Pattern: pattern, Role: o.Role, Within: o.Hosts == "within", Longest: longest, Times: times, Approve: o.Approve}
		}
	}
	return all, nil
}
