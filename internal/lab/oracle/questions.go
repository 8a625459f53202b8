package main

import (
	"math/rand/v2"
	"strings"

	"sluice/internal/lab/drafts"
)

// first is asked about every policy: its exit status says whether the policy is good.
var first = asked("check --json --offline")

// asked is a command about the policy, for the host of the case.
func asked(command string) question {
	name, rest, _ := strings.Cut(command, " ")
	args := append([]string{name, drafts.Main}, strings.Fields(rest)...)
	switch name {
	case "fmt":
		return question{args: args}
	case "plan":
		return question{args: args, inside: true}
	}
	return question{args: append(args, "--host", hostFile)}
}

// written is a compilation whose files are compared too.
func written(flags ...string) question {
	return question{args: append([]string{"compile", drafts.Main, "-o", "out", "--host", hostFile}, flags...), folder: "out"}
}

// loaded is a compilation for the kernel that runs here, with all that it can do.
func loaded() question {
	return question{args: []string{"compile", drafts.Main, "-o", "out"}, folder: "out", inside: true}
}

// rest is what else is asked about a policy: of all there is a few, by chance, or all
// of it where everything is wanted. Questions that need a namespace come where there
// is one.
func rest(r *rand.Rand, good, namespace, everything bool) (list []question) {
	some := func(n int, q question) {
		if drawn := r.IntN(n) == 0; (drawn || everything) && (namespace || !q.inside) {
			list = append(list, q)
		}
	}
	if !good {
		some(1, asked("fmt"))
		some(4, asked("check --offline"))
		some(4, asked("check --text --json"))
		some(4, asked("lint --json --offline"))
		some(4, asked("compile"))
		some(8, asked("plan --json"))
		some(8, asked("explain --src 192.0.2.7 --dport 22"))
		some(8, asked("query --allowed"))
		some(8, asked("test --json"))
		return list
	}
	some(1, written())
	some(1, asked("fmt"))
	some(2, asked("lint --json --offline"))
	some(2, loaded())
	some(4, asked("plan --json"))
	some(8, asked("plan --all"))
	some(8, asked("check --offline"))
	some(8, asked("lint --strict --offline"))
	some(16, asked("compile --explain"))
	some(16, written("--passes=-all"))
	some(16, asked("compile --json --passes=-merge-prefixes,-verdict-maps"))
	some(30, question{args: []string{"compile", drafts.Main, "--dump-passes", "out", "--host", hostFile}, folder: "out"})
	some(8, asked("test --json"))
	some(8, asked("test"))
	for range 3 {
		some(4, asked("explain --json "+packet(r)))
	}
	some(6, asked("explain "+packet(r)))
	some(3, asked("query --json "+which(r)))
	some(6, asked("query "+which(r)))
	some(8, question{args: []string{"diff", drafts.Main, "after.yaml", "--json", "--host", hostFile}})
	some(16, question{args: []string{"diff", drafts.Main, "after.yaml", "--markdown", "--host", hostFile}})
	return list
}

func pick(r *rand.Rand, list ...string) string { return list[r.IntN(len(list))] }

// packet are random flags of explain.
func packet(r *rand.Rand) string {
	there := func() string {
		return pick(r, "192.0.2.7", "203.0.113.7", "198.51.100.1", "10.20.0.5", "10.30.0.9", "127.0.0.1", "2001:db8:77::7", "2001:db8:20::5", "2001:db8:100::1", "2001:db8::1")
	}
	words := []string{"--dport", pick(r, "22", "80", "443", "8080", "53", "25", "https", "2000")}
	switch r.IntN(4) {
	case 0:
		words = append(words, "--proto", "udp")
	case 1:
		words = []string{"--icmp-type", pick(r, "echo-request", "destination-unreachable", "13")}
	case 2:
		words = append(words, "--flags", pick(r, "S", "SA", "A", "R"))
	}
	if r.IntN(6) > 0 {
		words = append(words, "--src", there())
	}
	if r.IntN(2) == 0 {
		words = append(words, "--dst", there())
	}
	if r.IntN(5) == 0 {
		words = append(words, "--in", pick(r, "wan0", "lan0", "eth0", "nowhere0"))
	}
	if r.IntN(5) == 0 {
		words = append(words, "--hook", pick(r, "input", "output", "forward"))
	}
	if r.IntN(3) == 0 {
		words = append(words, "--state", pick(r, "new", "established", "related", "invalid", "untracked"))
	}
	if r.IntN(6) == 0 {
		words = append(words, "--every-rule")
	}
	return strings.Join(words, " ")
}

// which are random flags of query.
func which(r *rand.Rand) string {
	words := []string{pick(r, "--allowed", "--dropped", "--allowed")}
	if r.IntN(2) == 0 {
		words = append(words, "--service", pick(r, "ssh", "tcp/80", "udp", "icmp", "web"))
	}
	if r.IntN(3) == 0 {
		words = append(words, "--from", pick(r, "a", "c", "lan", "203.0.113.0/24", "office"))
	}
	if r.IntN(3) == 0 {
		words = append(words, "--hook", pick(r, "input", "output", "forward"))
	}
	if r.IntN(3) == 0 {
		words = append(words, "--state", pick(r, "new", "established", "any", "untracked"))
	}
	return strings.Join(words, " ")
}
