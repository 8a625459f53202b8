package api

import (
	"strings"
	"testing"
)

// TestEachOperationSaysItsRole: one that does not is no document.
func TestEachOperationSaysItsRole(t *testing.T) {
	t.Parallel()
	all := Operations()
	if len(all) != strings.Count(string(document), "operationId:") {
		t.Errorf("%d operations of %d", len(all), strings.Count(string(document), "operationId:"))
	}
	for pattern, o := range all {
		if _, path, _ := strings.Cut(pattern, " "); o.ID == "" || !strings.HasPrefix(path, "/api/v1/") && path != "/metrics" {
			t.Errorf("%s: %+v", pattern, o)
		}
	}
	for _, role := range []string{"", "x-sluice-role: root"} {
		text := strings.Replace(string(document), "x-sluice-role: viewer", role, 1)
		if _, err := operations([]byte(text)); err == nil || !strings.Contains(err.Error(), "says by no x-sluice-role") {
			t.Errorf("%q instead of a role: %v", role, err)
		}
	}
}

func TestRolesIncludeTheOnesBefore(t *testing.T) {
	t.Parallel()
	names := []Role{"", "root", Viewer, Operator, Admin}
	for i, has := range names {
		for j, asked := range names {
			if got, want := has.Includes(asked), j >= 2 && i >= j; got != want {
				t.Errorf("%q includes %q: %v", has, asked, got)
			}
		}
	}
}
