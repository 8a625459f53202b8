package demo

import (
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/lab/testnet"
)

const explained = `A new TCP packet from 192.0.2.1:40000 to 198.51.100.10:80 that arrives on wan is dropped by this line:
  policy.yaml:27:12
      default: drop
               ^

Path through the policy
  input  rules    policy.yaml:29  allow web from visitors: 192.0.2.1 is not in visitors
> input  default  policy.yaml:27  default: drop (no rule matches)
`

func TestExcerptHasTheAnswerAndWhatIsAskedFor(t *testing.T) {
	got := excerpt(explained, "not in visitors")
	want := `A new TCP packet from 192.0.2.1:40000 to 198.51.100.10:80 that arrives on wan is dropped by this line:
  policy.yaml:27:12
      default: drop
...
  input  rules    policy.yaml:29  allow web from visitors: 192.0.2.1 is not in visitors`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := excerpt(explained, ""); strings.Contains(got, "...") || strings.Contains(got, "Path through the policy") {
		t.Errorf("nothing further down was asked for:\n%s", got)
	}
}

// A packet that was not met as it was said is not counted, in either family.
func TestForetoldCountsWhatCameTrue(t *testing.T) {
	said := [][2]answer{{{Verdict: "allow"}, {Verdict: "drop"}}, {{Verdict: "allow"}, {Verdict: "reject"}}}
	saw := [][2]testnet.Result{
		{{Outcome: testnet.Answered}, {Outcome: testnet.Silent}},
		{{Outcome: testnet.Silent}, {Outcome: testnet.Answered}},
	}
	if got := foretold(said, saw); got != 2 {
		t.Errorf("%d of 4 came true, and it should be 2", got)
	}
}

const disproved = `not proved: 2 kinds of packets that do not get what policy.yaml says (37 classes, 3705 rules, 175227 elements read, in 1.3s)

packet       input: tcp from 192.0.2.10:40000 to 198.51.100.10:22 in wan, new
  policy     drop, policy.yaml:27 default: drop
  kernel     accept, chain input rule 1: tcp dport 22 ip saddr 192.0.2.10 accept
  all of     state new or untracked, protocol tcp, port 22, source 192.0.2.10

packet       input: tcp from [2001:db8:77::7]:40000 to [2001:db8:100::10]:22 in wan, new
  policy     accept, policy.yaml:33 allow ssh from office
  kernel     drop, chain input rule 12: counter name "input_default" drop
  all of     state new or untracked, protocol tcp, port 22, source 2001:db8:77::/48
`

func TestWitnessesOfVerify(t *testing.T) {
	got, err := witnessesOf(disproved)
	if err != nil {
		t.Fatal(err)
	}
	want := []witness{
		{example{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("198.51.100.10"), 22}, "drop", "accept"},
		{example{netip.MustParseAddr("2001:db8:77::7"), netip.MustParseAddr("2001:db8:100::10"), 22}, "accept", "drop"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(witness{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if _, err := witnessesOf(strings.Replace(disproved, "192.0.2.10:", "192.0.2.:", 1)); err == nil {
		t.Error("an address that is none was read")
	}
	if text := shortened(disproved); strings.Contains(text, "all of") || !strings.Contains(text, "\n  ...\npacket ") {
		t.Errorf("shortened is not:\n%s", text)
	}
}

func TestStepsAreNotQuoted(t *testing.T) {
	got := withoutSteps("switch rules (3704) (step 11 of 13)\ngeneration 1 runs\n")
	if got != "generation 1 runs\n" {
		t.Errorf("%q", got)
	}
}

// What is left out of the picture is printed anyway, and its checks count.
func TestLeftOutOfThePictureOnly(t *testing.T) {
	var out strings.Builder
	r := &report{out: &out}
	for _, on := range []bool{false, true, true, false} {
		r.leaveOut(on)
		r.check("a packet", "silent", map[bool]string{false: "silent", true: "answered"}[on])
	}
	if n := strings.Count(out.String(), "a packet"); n != 4 {
		t.Errorf("%d of 4 rows were printed", n)
	}
	recorded := styled.ReplaceAllString(r.record.String(), "")
	if strings.Count(recorded, "a packet") != 2 || strings.Count(recorded, "...") != 1 {
		t.Errorf("recorded:\n%s", recorded)
	}
	r.out = io.Discard
	if len(r.close().Wrong) == 0 || len(r.wrong) != 2 || r.checks != 4 {
		t.Errorf("%d of %d checks differ: %q", len(r.wrong), r.checks, r.wrong)
	}
}

// A command that is too long for the picture goes on behind a backslash.
func TestLongCommandsGoOn(t *testing.T) {
	r := &report{out: io.Discard}
	r.quote("sluice explain policy.yaml "+strings.Repeat("--src 192.0.2.1 ", 6)+"--dport 80", "")
	lines := strings.Split(strings.TrimRight(styled.ReplaceAllString(r.record.String(), ""), "\n"), "\n")
	if len(lines) != 2 || !strings.HasSuffix(lines[0], ` \`) || strings.HasSuffix(lines[1], `\`) {
		t.Errorf("%q", lines)
	}
}
