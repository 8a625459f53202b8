package stories

import (
	"os"
	"os/exec"
	"path/filepath"

	"sluice/internal/lab/testnet"
)

func nftRules(s *testnet.Namespace, ruleset string) error {
	_, err := s.RunInput(ruleset, "nft", "-f", "-")
	return err
}

func iptablesRestore(s *testnet.Namespace, rules string) error {
	_, err := s.RunInput(rules, "iptables-legacy-restore")
	return err
}

// clearHost takes all rules of a host away, and Sluice's state of it.
func clearHost(s *Stage, host *testnet.Namespace) error {
	if err := nftRules(host, "flush ruleset\n"); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(s.StateDir(host), "netns", host.Name())); err != nil {
		return err
	}
	if _, err := exec.LookPath("iptables-legacy-restore"); err != nil {
		return nil //nolint:nilerr // then there are no such rules
	}
	return iptablesRestore(host, "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n")
}

// Counted says that time is counted in instructions.
func (s *Stage) Counted() bool { return s.report.Machine.Counted }

// packetRounds is in how many rounds packets are measured: full by a clock of a story
// that is not short. Counted rounds are nearly alike.
func (s *Stage) packetRounds(full int) int {
	switch {
	case s.Short:
		return 7
	case s.Counted():
		return 9
	}
	return full
}

// each is the unit of what a packet costs.
func (s *Stage) each() string {
	if s.Counted() {
		return "instructions"
	}
	return "ns"
}

// write puts a policy that the page does not show into the story's folder.
func (s *Stage) write(name, policy string) (file string, err error) {
	file = filepath.Join(s.Dir, name)
	return file, os.WriteFile(file, []byte(policy), 0o600)
}
