package demo

import (
	"regexp"
	"strings"
	"sync"

	"sluice/internal/lab/testnet"
)

// answer is what sluice explain says of one packet.
type answer struct {
	Verdict  string `json:"verdict"` // "allow", "drop", "reject"
	Stage    string `json:"stage"`   // that decides
	Sentence string `json:"sentence"`
}

// outcome is what a client sees where the answer is true.
func (a answer) outcome() string {
	switch a.Verdict {
	case "allow":
		return answered
	case "drop":
		return silent
	}
	return a.Verdict
}

// explain asks what the policy does with a packet; it is an error when the
// compiled rules would do otherwise.
func (d *demo) explain(packet ...string) (a answer, err error) {
	err = d.ask(&a, append([]string{"explain", d.policy}, packet...)...)
	return a, err
}

// askers is how many questions are asked at a time.
const askers = 4

// askAll asks of every try of every client, in both families, before any packet
// is sent: the answers for IPv4 and IPv6, in the order of clients and tries.
func (d *demo) askAll() ([][2]answer, error) {
	out := make([][2]answer, len(d.clients)*len(tries))
	errs := make([]error, 2*len(out))
	var group sync.WaitGroup
	free := make(chan bool, askers)
	for i := range out {
		c, t := d.clients[i/len(tries)], tries[i%len(tries)]
		for family, source := range []string{c.v4.String(), c.v6.String()} {
			group.Go(func() {
				free <- true
				defer func() { <-free }()
				out[i][family], errs[2*i+family] = d.explain(append([]string{"--src", source}, t.packet...)...)
			})
		}
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// foretold counts the packets of a client that met what explain had said.
func foretold(said [][2]answer, saw [][2]testnet.Result) (n int) {
	for i := range said {
		for family := range said[i] {
			if said[i][family].outcome() == saw[i][family].Outcome.String() {
				n++
			}
		}
	}
	return n
}

// quoteExplain shows the beginning of an answer, and a line of it that matches.
func (d *demo) quoteExplain(also string, packet ...string) error {
	args := append([]string{"explain", d.policy}, packet...)
	out, _, err := d.answer(args...)
	if err != nil {
		return err
	}
	d.quote("sluice "+strings.Join(args, " "), excerpt(out, also))
	return nil
}

// caret points at a column of the line above it, which is there anyway.
var caret = regexp.MustCompile(`^\s*\^\s*$`)

// excerpt is the first paragraph of an answer and, behind dots, the first line
// further down that holds a text; "" is none.
func excerpt(out, also string) string {
	first, rest, _ := strings.Cut(out, "\n\n")
	var lines []string
	for line := range strings.Lines(first) {
		if !caret.MatchString(line) {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	for line := range strings.Lines(rest) {
		if also != "" && strings.Contains(line, also) {
			lines = append(lines, "...", strings.TrimRight(line, "\n"))
			break
		}
	}
	return strings.Join(lines, "\n")
}
