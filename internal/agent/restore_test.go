package agent

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sluice/internal/agent/api"
	"sluice/internal/engine/apply"
)

// What a sync cannot edit is loaded by another process, which tells what it does.
func TestRestorer(t *testing.T) {
	var told []string
	tell := func(l api.Line) { told = append(told, l.Note) }
	for script, want := range map[string]string{
		`read o; case $o in *'"operation":"restore","request":{"waiting":true}'*'"by":{"user":"anna"}'*) echo '{"note":"a"}'; echo '{"result":{"generation":7}}'; esac`: "",
		`echo '{"note":"b"}'; echo '{"failure":{"error":"no","exit-status":1}}'`:                                                                                        "no",
	} {
		s := &Site{Command: []string{"/bin/sh", "-c", script}}
		out, err := s.restorer(apply.Author{User: "anna"}, nil, tell)(context.Background())
		var f *api.Failure
		if want == "" && (err != nil || out.Generation != 7) || want != "" && (!errors.As(err, &f) || f.Text != want || f.Exit != 1) {
			t.Errorf("%s: %+v %v", script, out, err)
		}
	}
	if got := strings.Join(told, ""); got != "ab" && got != "ba" {
		t.Errorf("told %q", told)
	}
}
