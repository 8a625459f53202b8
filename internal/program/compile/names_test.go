package compile_test

import (
	"os"
	"path/filepath"
	"testing"
)

// The sets that compile makes of others have names that no policy can give:
// once, a ban of "banned" asked the policy's own set "ban-banned", and a rule
// from two sets asked a third one that bore both names.
func TestMadeSetsMeetNoNames(t *testing.T) {
	dir := t.TempDir()
	policy := `version: 1
sets:
  banned: [192.0.2.1, 192.0.2.3, 192.0.2.5, 192.0.2.7, 192.0.2.9]
  ban-banned: [198.51.100.1]
  office: [203.0.113.1, 203.0.113.3, 203.0.113.5]
  vpn: [203.0.113.7, 203.0.113.9, 203.0.113.11]
  office-vpn: [198.51.100.2]
  never-ban: [198.51.100.3]
ban: [banned]
input:
  default: drop
  rules:
    - allow ssh from [office, vpn] limit 3/minute per source then ban 1h
    - allow http from office-vpn
    - allow https from ban-banned
    - allow smtp from never-ban
`
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	p := compiled(t, dir)
	for id, want := range map[string]int{
		"ban.banned": 5, "ban-banned": 1, "group.office.vpn": 6, "office-vpn": 1, "never-ban": 1,
	} {
		set := p.Set(id)
		if set == nil {
			t.Errorf("there is no set %s in\n%s", id, p.Text())
			continue
		}
		if set.Len() != want {
			t.Errorf("set %s has %d elements, want %d", id, set.Len(), want)
		}
	}
}
