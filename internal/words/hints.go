// Package words tells people what an error means for them: what to type against it, and
// which exit status it is. The engine says what is wrong, and knows neither commands nor
// flags.
package words

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"sluice/internal/backend/trace"
	"sluice/internal/base/english"
	"sluice/internal/base/nearest"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/engine/shadow"
	"sluice/internal/language/geo"
	"sluice/internal/language/lists"
	"sluice/internal/language/policy"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/expect"
)

// Hinted is the text of an error with what to type against it: behind the text of each
// error that it is made of, where the table below has something to say of that one.
// Here is the flags that lead a command to the same namespace and state: "" or such as
// " --netns customer7".
func Hinted(err error, here string) string {
	text := err.Error()
	var inner []error
	switch e := err.(type) { //nolint:errorlint // what this error wraps comes by the recursion
	case *apply.UnreadableError:
		text, inner = e.Text("sluice restore"), []error{e.Cause}
	case *apply.ClosedError:
		inner = []error{e.Cause, e.Err}
	case interface{ Unwrap() error }:
		inner = []error{e.Unwrap()}
	case interface{ Unwrap() []error }:
		inner = e.Unwrap()
	}
	for _, child := range inner {
		if child == nil || child.Error() == "" {
			continue
		}
		text = strings.Replace(text, child.Error(), Hinted(child, here), 1)
	}
	switch hint := hintOf(err, here); {
	case strings.HasPrefix(hint, "; "), strings.HasPrefix(hint, " ("): // goes on in the line
		text += hint
	case hint != "":
		text += "\n  hint: " + hint
	}
	return text
}

// reportIt is what to do where one part of Sluice contradicts another.
const reportIt = "this is a bug in Sluice, not in the policy: please report it with the policy"

// hintOf is the table from errors to hints; "" for an error that is in no need of one.
func hintOf(err error, here string) string {
	if err == shadow.ErrRuns { //nolint:errorlint // as below
		return "wait until it ends, or stop it by Ctrl-C where it was started"
	}
	if err == engine.ErrNoPublisher { //nolint:errorlint // as below
		return "give --from with a file or URL, or with a publisher: dbip, registries"
	}
	if err == engine.ErrNotKept { //nolint:errorlint // as below
		return "the agent keeps the log while it runs: systemctl enable --now sluice-agent.service; sluice log --follow" + here + " shows new packets"
	}
	if err == apply.ErrUnmanaged { //nolint:errorlint // as below
		return "sluice agent enrol makes it part of a fleet"
	}
	if err == engine.ErrNoEvents { //nolint:errorlint // as below
		return "sysctl -w net.netfilter.nf_conntrack_events=1 turns events on, for entries made from then on"
	}
	if err == engine.ErrMeaningLate { //nolint:errorlint // as below
		return " (before an apply, sluice plan has no such limit)"
	}
	switch e := err.(type) { //nolint:errorlint // of this error, and not of one that it wraps
	case engine.UnboundedError:
		return "set in the policy who may be allowed by others, and for how long: exceptions: {who: [...], longest: 8h}"
	case *engine.FactsError:
		if e.Err != nil {
			return "write them there with sluice facts --json"
		}
		return "write them there with this version of sluice facts --json"
	case interface{ Hint(here string) string }:
		return e.Hint(here)
	case *engine.LiveError:
		if errors.Is(e, fs.ErrPermission) && !errors.Is(e, trace.ErrQuestion) {
			return "run it as root"
		}
	case *engine.NoListError:
		if len(e.Known) == 0 {
			return "none of its sets has a url"
		}
		return "it has: " + strings.Join(e.Known, ", ")
	case *engine.SignedListError:
		if e.Live {
			return "see sluice-controller lists; sluice-controller lists refresh downloads it at once"
		}
		return "sluice-controller sign puts its current contents into the next bundle; with refresh: TIME in the policy hosts download it themselves"
	case *engine.NoLivingSetError:
		return livingHint(e)
	case *engine.FleetAllowsError:
		return "lift it on a controller by sluice-controller disallow " + e.What
	case *engine.NotAllowedError:
		return fmt.Sprintf("sluice allows%s lists exceptions", here)
	case *engine.OldGenerationError:
		return fmt.Sprintf("sluice apply%s %s", here, e.Generation.Policy)
	case *engine.OthersChangedError:
		return fmt.Sprintf("sluice apply%s %s applies everything", here, e.Generation.Policy)
	case *policy.Error:
		return PolicyRemedy(e.Remedy)
	case *geo.UnreadableError:
		if errors.Is(e, fs.ErrPermission) {
			return PolicyRemedy(policy.ReadCountries)
		}
		return PolicyRemedy(policy.RenewCountries)
	case *geo.InUseError:
		return "--force replaces what cannot be read"
	case *geo.ShrunkError:
		return "a truncated file looks like this; if it is right, since another publisher counts differently, give --force"
	case *lists.SizeError:
		return "if the list is right, --force accepts it"
	case *lists.StaleError:
		if refused := (*lists.SizeError)(nil); errors.As(e.Err, &refused) {
			return "if the list is right, sluice refresh --force accepts it"
		}
	case *optimize.UnknownPassError:
		if e.Nearest == "" {
			return "sluice compile --explain lists the passes"
		}
	case shadow.UntrackedError:
		return "if that is fine, give --start-tracking; it ends with the shadow"
	case *expect.UnprovableError:
		return "test fewer expectations at a time; apply --no-expect proves none"
	case *apply.ManagedError:
		return fmt.Sprintf("change the policy of the fleet; --detach applies this one anyway, and sluice agent attach%s goes back to the fleet's", here)
	case *apply.BusyError:
		return "wait for it, or raise --wait"
	case *engine.TooMuchError:
		return "narrow the query by --hook, --service, --from or --to"
	case *engine.ClosedAskedError:
		return "give a FILE"
	case *apply.ClosedRunsError:
		return fmt.Sprintf("apply a policy, or sluice rollback%s to a generation of sluice history%s", here, here)
	case *apply.ClosedError:
		if e.Err != nil {
			return "apply a policy"
		}
		return fmt.Sprintf("apply a policy, or sluice rollback%s to a generation of sluice history%s", here, here)
	case *apply.LeftError:
		return fmt.Sprintf("sluice status%s shows what runs; apply the policy again to write it again", here)
	case *apply.UnreadableError:
		return "apply the policy again, which writes it again"
	case interface{ OfSluice() }: // and not of the policy
		return reportIt
	case *apply.DisprovedError:
		return reportIt + "; --no-verify loads it anyway"
	case *apply.LockOutError:
		what := "allow the tunnel's own packets"
		if e.BySSH() {
			what = "allow ssh from there"
		}
		return what + ", or give --force, which rolls back unless you confirm in time"
	case *apply.MemoryError:
		return "--force loads it anyway"
	case *apply.TuningMemoryError:
		return "--force sets it anyway"
	case *apply.ShrinkError:
		return fmt.Sprintf("sluice conntrack delete%s deletes entries; others expire", here)
	case *apply.SetByPolicyError:
		return "change it there, and apply the policy"
	case *apply.WaitingError:
		return "give --confirm to apply this one on trial too, or --no-confirm to keep it at once"
	case *apply.UndurableError:
		return fmt.Sprintf("sluice confirm%s again when the disk has room", here)
	case *apply.NewerError:
		return "use the sluice that wrote it, or a newer one"
	case *apply.MissingError:
		return fmt.Sprintf("sluice history%s lists those that are kept", here)
	case *apply.RemedyError:
		return remedy(e, here)
	}
	return ""
}

// PolicyRemedy is what does about an error of a policy, or a finding, what it says
// would fix it; "" for none.
func PolicyRemedy(r policy.Remedy) string { return policyRemedies[r] }

var policyRemedies = map[policy.Remedy]string{
	policy.SeeCountries:    "\"sluice geo list --all\" lists the countries in the data",
	policy.RenewCountries:  "run sluice geo update again, or remove the file to go back to the built-in data",
	policy.ReadCountries:   "run it as root, or give --state-dir with a directory that you can read",
	policy.SeeFindingCodes: "sluice lint --list shows the codes",
	policy.GiveLabels:      "give the file of the fleet, and --labels with those of a host: sluice check --labels role=web fleet.yaml",
	policy.NameOrGiveFacts: "name the interface, or compile with the facts of the host (sluice facts --json)",
}

// remedy is what does about an error what the engine says would help.
func remedy(e *apply.RemedyError, here string) string {
	return strings.NewReplacer("{here}", here, "{generation}", strconv.Itoa(e.Generation), "{name}", e.Name).Replace(remedies[e.Remedy])
}

// remedies has what is behind the name of a command for {here}.
var remedies = map[apply.Remedy]string{
	apply.BeRoot:                   "run it with sudo",
	apply.ApplyOne:                 "apply one; sluice init writes a first one",
	apply.ApplyAgain:               "apply it again",
	apply.ApplyAgainOrGoTo:         "apply it again, or sluice rollback{here} {generation}",
	apply.ApplyAgainOrGoBack:       "apply it again, or sluice rollback{here} to a generation of sluice history{here}",
	apply.ApplyPolicing:            "apply one that has input, forward or output",
	apply.ApplyAgainPolicing:       "apply it again with such a section",
	apply.ApplyUnconfirmed:         "apply with --no-confirm",
	apply.ApplyUnconfirmedOrRemove: "apply with --no-confirm, or sluice remove{here} first",
	apply.NamePolicy:               "sluice apply loads one, sluice verify FILE names the one to compare with",
	apply.NamePolicyOrReplace:      "sluice verify FILE names the policy to compare with; apply a policy, or sluice remove{here}",
	apply.SeeRunning:               "sluice status{here} shows what runs",
	apply.SeeKernel:                "sluice status{here} shows what the kernel holds; sluice restore{here} loads the last confirmed policy, sluice remove{here} removes everything",
	apply.SeeHistory:               "sluice history{here} lists those that are kept",
	apply.SeeOthers:                "sluice history{here} lists the others",
	apply.SeeHistoryOrRemove:       "sluice history{here} lists generations, sluice remove{here} removes everything",
	apply.GoToOrRemove:             "sluice rollback{here} N goes to a generation of sluice history{here}, sluice remove{here} removes everything",
	apply.GoTo:                     "sluice rollback{here} {generation} goes to the newest kept generation before it",
	apply.ForceBack:                "--force goes back without checking for a lock-out",
	apply.Remove:                   "sluice remove{here} removes everything",
	apply.RestoreConfirmed:         "sluice restore{here} loads the confirmed policy",
	apply.GoBackUnconfirmed:        "sluice rollback{here} --no-confirm goes back without a trial",
	apply.DoAgain:                  "do it again",
	apply.RefreshAgain:             "sluice refresh{here} again",
	apply.ConfirmFirst:             "sluice confirm{here} keeps it",
	apply.FreeDisk:                 "make room there, or make it writable; sluice restore{here} and the way back from a trial need no room",
	apply.SmallerSets:              "smaller sets",
	apply.LeaveSysctl:              "{name} belongs to the whole machine and cannot be set in a network namespace",
	apply.KeepForced:               "; --no-confirm keeps it",
	apply.SyncOnceUp:               "; sluice sync adds it once it is up",
	apply.ForceBan:                 " (--force bans it)",
	apply.ForceWideBan:             " (--force bans prefixes of /7 or shorter, /15 for IPv6)",
	apply.MeasureAnew:              "; sluice-lab bench calibrate measures again",
	apply.MeasureAnewOrForget:      "; \"sluice-lab bench calibrate\" measures again, \"sluice-lab bench calibrate --remove\" goes back to the built-in figures",
	apply.ReplaceMeasured:          "; remove it, or run sluice-lab bench calibrate again",
}

// LogFlags are what the fields of a choice of logged packets are called by whoever asks.
var LogFlags = map[string]string{"source": "--src", "service": "--service", "country": "--country", "line": "--line"}

// DropFlags are what the fields of a choice of dropped packets are called by whoever asks.
var DropFlags = map[string]string{"source": "--src", "reason": "--reason"}

// livingHint is how a command can edit the set after all.
func livingHint(e *engine.NoLivingSetError) string {
	const how = "add %[1]s: {living: true, addresses: […]} to the policy, and apply it"
	switch name := nearest.Of(e.Set, e.Known); {
	case e.Exists:
		return fmt.Sprintf(how, e.Set)
	case name != "":
		return "did you mean " + name + "?"
	case len(e.Known) > 0:
		return "its living sets are " + english.List(e.Known)
	}
	return "it has no living set: " + fmt.Sprintf(how, e.Set)
}
