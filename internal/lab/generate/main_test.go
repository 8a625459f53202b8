package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestMan is that man pages show flags as --help does.
func TestMan(t *testing.T) {
	dir := t.TempDir()
	if err := generate(dir, []string{"man"}); err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string][]string{
		"sluice.1":            {`(?m)^.SS Ban and allow\n.TP\n.fBallow.fP$`},
		"sluice-geo-update.1": nil,
		"sluice-apply.1": {
			`(?m)^.fB--confirm.fP .fITIME.fP$`,
			`(?m)^.fB--cut.fP$`,
			`wait at most TIME for another command .*\(default 10s\)\n`,
		},
	} {
		text, err := os.ReadFile(filepath.Join(dir, "man", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, expr := range want {
			if !regexp.MustCompile(expr).Match(text) {
				t.Errorf("%s has no %s:\n%s", page, expr, text)
			}
		}
		if flag := regexp.MustCompile(`fP\[?=.*`).Find(text); flag != nil {
			t.Errorf("%s has a flag as the library writes it: %s", page, flag)
		}
	}
}
